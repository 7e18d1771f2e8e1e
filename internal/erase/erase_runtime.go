//go:build goexperiment.runtimesecret

package erase

import "runtime/secret"

func do(f func()) { secret.Do(f) }
