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

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// maxResponse is more than any TPM answers.
const maxResponse = 4096

// dial opens a TPM: a device, or a socket of one that is a process.
func dial(ctx context.Context, path string) (transport.TPMCloser, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, noDevice(path, err)
	}
	var opened transport.TPMCloser
	switch {
	case info.Mode()&os.ModeSocket != 0:
		connection, failed := new(net.Dialer).DialContext(ctx, "unix", path)
		opened, err = socket{connection}, failed
	case info.Mode()&os.ModeDevice != 0:
		opened, err = linuxtpm.Open(path)
	default:
		return nil, fmt.Errorf("%w: %s is neither a device nor a socket: name the TPM's, /dev/tpmrm0", kmsplugin.ErrUnavailable, path)
	}
	if err != nil {
		return nil, noDevice(path, err)
	}
	return opened, nil
}

// noTPM is an error that is ErrNoTPM too, and says so in its own words.
type noTPM struct{ error }

func (e noTPM) Unwrap() error      { return e.error }
func (noTPM) Is(target error) bool { return target == ErrNoTPM }

// noDevice says what to do where a TPM cannot be opened. It does not wrap the cause, which would be
// taken for that of the file of keys.
func noDevice(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noTPM{fmt.Errorf("%w: no TPM at %s: switch it on in the firmware, look with ls -l /dev/tpm*, and give a container the device: %v", kmsplugin.ErrUnavailable, path, err)}
	case errors.Is(err, fs.ErrPermission):
		return noTPM{fmt.Errorf("%w: TPM %s: let uid %d read and write it, most often by the group tss: %v", kmsplugin.ErrDenied, path, os.Geteuid(), err)}
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%w: TPM %s is in use by another process: /dev/tpmrm0 is the one that takes several: %v", kmsplugin.ErrUnavailable, path, err)
	}
	return fmt.Errorf("%w: TPM %s does not answer: is it there, and is its process running? %v", kmsplugin.ErrUnavailable, path, err)
}

// socket is a TPM that is a process, as swtpm is. The answer may come in pieces.
type socket struct{ net.Conn }

// Send is of no use any more after an error: an answer that comes late would be taken for the next one.
func (s socket) Send(command []byte) (answer []byte, err error) {
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
