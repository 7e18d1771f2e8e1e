package tpm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// maxResponse is more than any TPM answers.
const maxResponse = 4096

// dial opens a TPM: a device, or a socket of one that is a process.
func dial(ctx context.Context, path string, clock clock.Clock) (*line, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, noDevice(path, err)
	}
	var opened transport.TPMCloser
	switch {
	case info.Mode()&os.ModeSocket != 0:
		connection, failed := new(net.Dialer).DialContext(ctx, "unix", path)
		opened, err = socket{ctx, connection}, failed
	case info.Mode()&os.ModeDevice != 0:
		opened, err = linuxtpm.Open(path)
	default:
		return nil, fmt.Errorf("%w: %s is neither a device nor a socket: name the TPM's, /dev/tpmrm0", kmsplugin.ErrUnavailable, path)
	}
	if err != nil {
		return nil, noDevice(path, err)
	}
	return &line{ctx: ctx, clock: clock, TPMCloser: opened}, nil
}

// noDevice says what to do where a TPM cannot be opened. It does not wrap the cause, which would be
// taken for that of the file of keys.
func noDevice(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: no TPM at %s: switch it on in the firmware, look with ls -l /dev/tpm*, and give a container the device: %v", kmsplugin.ErrUnavailable, path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: TPM %s: let uid %d read and write it, most often by the group tss: %v", kmsplugin.ErrDenied, path, os.Geteuid(), err)
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%w: TPM %s is in use by another process: /dev/tpmrm0 is the one that takes several: %v", kmsplugin.ErrUnavailable, path, err)
	}
	return fmt.Errorf("%w: TPM %s does not answer: is it there, and is its process running? %v", kmsplugin.ErrUnavailable, path, err)
}

// line is an open TPM, for one goroutine and for as long as ctx lasts. A command that has begun is
// waited for a little longer, as nobody could flush what it loads otherwise; on a device it ends
// by the kernel's clock.
type line struct {
	transport.TPMCloser
	ctx   context.Context
	clock clock.Clock
}

// later are the answers of a TPM that is to be asked again: it was busy with itself.
var later = []tpm2.TPMRC{tpm2.TPMRCRetry, tpm2.TPMRCYielded, tpm2.TPMRCTesting}

// Send sends a command, and again while the TPM says that it is busy. What is loaded is flushed also
// when ctx has ended.
func (l *line) Send(command []byte) ([]byte, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		if err := context.Cause(l.ctx); err != nil && !flushes(command) {
			return nil, fmt.Errorf("%w: the TPM takes too long: %w", kmsplugin.ErrUnavailable, err)
		}
		answer, err := l.TPMCloser.Send(command)
		if err != nil {
			return nil, fmt.Errorf("%w: the TPM does not answer: %w", kmsplugin.ErrUnavailable, err)
		}
		if len(answer) < headerSize {
			return nil, fmt.Errorf("%w: the TPM answered %d bytes, fewer than a header has", kmsplugin.ErrUnavailable, len(answer))
		}
		if !isOneOf(later, tpm2.TPMRC(binary.BigEndian.Uint32(answer[6:]))) {
			return answer, nil
		}
		select {
		case <-l.ctx.Done():
		case <-l.clock.After(min(wait, time.Second)):
		}
	}
}

func flushes(command []byte) bool {
	return len(command) >= headerSize && tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) == tpm2.TPMCCFlushContext
}

func isOneOf(all []tpm2.TPMRC, code tpm2.TPMRC) bool {
	for _, c := range all {
		if c == code {
			return true
		}
	}
	return false
}

// headerSize is the size of what each answer begins with: a tag, its length and a code.
const headerSize = 10

// socket is a TPM that is a process, as swtpm is. The answer may come in pieces.
type socket struct {
	ctx context.Context
	net.Conn
}

// grace is how long an answer is waited for after the end of ctx.
const grace = 2 * time.Second

// Send ends soon after ctx does. After an error the connection is of no use any more: an answer
// that comes late would be taken for the next one.
func (s socket) Send(command []byte) (answer []byte, err error) {
	stop := context.AfterFunc(s.ctx, func() { _ = s.SetDeadline(time.Now().Add(grace)) })
	defer stop()
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if _, err := s.Write(command); err != nil {
		return nil, err
	}
	answer = make([]byte, 0, maxResponse)
	for len(answer) < headerSize || len(answer) < int(binary.BigEndian.Uint32(answer[2:])) {
		if len(answer) == cap(answer) {
			return nil, fmt.Errorf("its answer has more than %d bytes", maxResponse)
		}
		n, err := s.Read(answer[len(answer):cap(answer)])
		if err != nil {
			return nil, err
		}
		answer = answer[:len(answer)+n]
	}
	return answer, nil
}
