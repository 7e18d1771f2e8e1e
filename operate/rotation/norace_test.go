//go:build !race

package rotation_test

const raced = false
