//go:build !linux

package conformance

type instant struct{}

func thisInstant() instant { return instant{} }

func (instant) isBefore(int) (bool, error) { return false, nil }
