//go:build !linux

package main

func keepMemoryPrivate() {}
