package tpm

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// line is an open TPM, for one goroutine and for as long as ctx lasts. Whoever asks goes away then. The
// TPM does some time what it was asked last, and nobody else would flush what that loads: so
// what is left to be flushed is flushed by Close, and free is called after that.
type line struct {
	transport.TPMCloser
	ctx   context.Context
	clock clock.Clock
	free  func()
	open  <-chan exchange // what was not answered when ctx ended, or nil
	late  []tpm2.TPMHandle
}

// begin asks a socket something that loads nothing, and waits for the answer. A process that is stopped, or
// has somebody else to answer, runs later what waits there, for whoever has ended since, too.
func (l *line) begin() error {
	if _, is := l.TPMCloser.(socket); !is {
		return nil
	}
	if _, err := (tpm2.GetRandom{BytesRequested: 1}).Execute(l); err != nil {
		return fmt.Errorf("its first answer: %w", classify(err))
	}
	return nil
}

// exchange is a command, and what came of it.
type exchange struct {
	command, answer []byte
	err             error
}

// later are the answers of a TPM that is to be asked again: it was busy with itself.
var later = []tpm2.TPMRC{tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting}

// Send sends a command, and again while the TPM says that it is busy.
func (l *line) Send(command []byte) ([]byte, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		done := l.ask(command)
		if done.err != nil && tpm2.TPMCC(codeOf(command)) == tpm2.TPMCCFlushContext {
			l.late = append(l.late, handleIn(command))
		}
		if done.err != nil || !slices.Contains(later, tpm2.TPMRC(codeOf(done.answer))) {
			return done.answer, done.err
		}
		select {
		case <-l.ctx.Done():
		case <-l.clock.After(wait):
		}
	}
}

// ask sends a command once. What is not answered when ctx ends is left to Close.
func (l *line) ask(command []byte) exchange {
	if l.ctx.Err() == nil {
		answered := make(chan exchange, 1)
		go func() {
			answer, err := l.TPMCloser.Send(command)
			answered <- exchange{command, answer, err}
		}()
		select {
		case done := <-answered:
			return done.checked()
		case <-l.ctx.Done():
			l.open = answered
		}
	}
	return exchange{err: fmt.Errorf("%w: the TPM takes too long: %w", kmsplugin.ErrUnavailable, context.Cause(l.ctx))}
}

func (e exchange) checked() exchange {
	switch {
	case e.err != nil:
		e.err = fmt.Errorf("%w: the TPM does not answer: %w", kmsplugin.ErrUnavailable, e.err)
	case len(e.answer) < headerSize:
		e.err = fmt.Errorf("%w: the TPM answered %d bytes, fewer than a header has", kmsplugin.ErrUnavailable, len(e.answer))
	}
	return e
}

// grace is how long Close waits: for four answers of a slow TPM.
const grace = 10 * time.Second

// Close flushes what is left and closes the TPM. It waits for a while, and lets it go on: for as
// long as the TPM stands still, or is busy, nobody can ask it anything else.
func (l *line) Close() error {
	if l.open == nil && len(l.late) == 0 {
		defer l.free()
		return l.TPMCloser.Close()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer l.free()
		defer l.TPMCloser.Close()
		l.flush()
	}()
	select {
	case <-ended:
	case <-l.clock.After(grace):
	}
	return nil
}

// flush flushes what is left, and what the last command loads once that is answered.
func (l *line) flush() {
	if l.open != nil {
		if done := (<-l.open).checked(); done.loads() {
			l.late = append(l.late, handleIn(done.answer))
		}
	}
	then := &line{TPMCloser: l.TPMCloser, ctx: context.Background(), clock: l.clock}
	for _, handle := range l.late {
		_, _ = tpm2.FlushContext{FlushHandle: handle}.Execute(then)
	}
}

// loads tells if something is loaded now that has to be flushed.
func (e exchange) loads() bool {
	ways := []tpm2.TPMCC{tpm2.TPMCCCreatePrimary, tpm2.TPMCCLoad, tpm2.TPMCCStartAuthSession}
	return e.err == nil && len(e.answer) >= headerSize+4 && tpm2.TPMRC(codeOf(e.answer)) == tpm2.TPMRCSuccess && slices.Contains(ways, tpm2.TPMCC(codeOf(e.command)))
}

// headerSize is the size of what each command and answer begins with: a tag, its length and a code.
const headerSize = 10

func codeOf(message []byte) uint32 { return binary.BigEndian.Uint32(message[6:]) }

// handleIn is the first one in a command that takes, or an answer that gives, one.
func handleIn(message []byte) tpm2.TPMHandle {
	return tpm2.TPMHandle(binary.BigEndian.Uint32(message[headerSize:]))
}
