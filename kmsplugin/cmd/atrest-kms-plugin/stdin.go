package main

import (
	"context"
	"errors"
	"io"
)

// interruptible is a reader on which a signal ends the wait for what may never come. The read itself
// goes on then, until the process ends.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done, buffer := make(chan result, 1), make([]byte, len(p))
	go func() {
		n, err := r.in.Read(buffer)
		done <- result{n, err}
	}()
	select {
	case got := <-done:
		return copy(p, buffer[:got.n]), got.err
	case <-r.ctx.Done():
		return 0, errors.New("interrupted")
	}
}
