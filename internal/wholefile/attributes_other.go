//go:build !linux

package wholefile

// Extended attributes and mounts are those of Linux, where apiservers are.

func keepAttributes(string, string) error { return nil }

func sameAttributes(string, string) error { return nil }

func isFrozen(string) bool { return false }

func mountedAlone(string, string) string { return "" }
