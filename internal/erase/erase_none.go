//go:build !goexperiment.runtimesecret

package erase

func do(f func()) { f() }
