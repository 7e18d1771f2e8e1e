//go:build !race

package controller

const every = 1
