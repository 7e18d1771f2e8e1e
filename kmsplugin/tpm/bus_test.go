package tpm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// A bus is what is between the process and the TPM, with somebody who sits there.
type bus struct {
	path string
	mu   sync.Mutex
	seen bytes.Buffer
	// before has each command first, and the TPM, and may take its time.
	before func(command []byte, chip io.ReadWriter)
	// command looks at each command.
	command func([]byte)
	// change is what becomes of an answer to a command.
	change func(command tpm2.TPMCC, answer []byte) []byte
}

func onBus(t *testing.T, chip *swtpmtest.TPM) *bus {
	t.Helper()
	b := &bus{path: filepath.Join(shortFolder(t), "bus.sock"), change: func(_ tpm2.TPMCC, answer []byte) []byte { return answer }, command: func([]byte) {}, before: func([]byte, io.ReadWriter) {}}
	listener, err := net.Listen("unix", b.path)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go b.carry(connection, chip.Device())
		}
	}()
	return b
}

// carry carries commands to the TPM and answers back, one at a time.
func (b *bus) carry(process net.Conn, device string) {
	defer process.Close()
	chip, err := net.Dial("unix", device)
	if err != nil {
		return
	}
	defer chip.Close()
	for {
		command, err := message(process)
		if err != nil {
			return
		}
		b.mu.Lock()
		before := b.before
		b.mu.Unlock()
		before(command, chip)
		if _, err := chip.Write(command); err != nil {
			return
		}
		answer, err := message(chip)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.seen.Write(command)
		b.seen.Write(answer)
		b.command(command)
		answer = b.change(code(command), answer)
		b.mu.Unlock()
		if _, err := process.Write(answer); err != nil {
			return
		}
	}
}

func message(from io.Reader) ([]byte, error) {
	header := make([]byte, 10)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(header[2:])-10)
	_, err := io.ReadFull(from, rest)
	return append(header, rest...), err
}

func (b *bus) store(t *testing.T, path, pcrs string) *tpm.Store {
	t.Helper()
	s, err := tpm.New(tpm.Config{Device: b.path, File: path, PCRs: pcrs, Check: 1})
	require.NoError(t, err)
	return s
}

// shows reports whether a part of something went over the bus.
func (b *bus) shows(secret []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := 0; at+8 <= len(secret); at++ {
		if bytes.Contains(b.seen.Bytes(), secret[at:at+8]) {
			return true
		}
	}
	return false
}

var recognisable = []byte("0123456789abcdefghijklmnopqrstuv")

// withKnownKEK has the next key be a recognisable one.
func withKnownKEK(s *tpm.Store) {
	tpm.SetRandom(s, io.MultiReader(bytes.NewReader(bytes.Repeat([]byte{7}, 16)), bytes.NewReader(recognisable)))
}

func TestAKEKNeverCrossesTheBusInTheClear(t *testing.T) {
	for _, pcrs := range []string{"", "sha256:7"} {
		b := onBus(t, swtpmtest.Start(t))
		s := b.store(t, filepath.Join(t.TempDir(), "kek.json"), pcrs)
		withKnownKEK(s)
		_, _, err := s.Create(t.Context(), false)
		require.NoError(t, err)
		wrap(t, s)
		require.NotZero(t, b.seen.Len())
		require.False(t, b.shows(recognisable))
		data, err := os.ReadFile(s.Path())
		require.NoError(t, err)
		require.NotContains(t, string(data), string(recognisable[:8]))
		err = unsealInTheClear(t, b, data)
		if pcrs != "" {
			require.ErrorIs(t, err, tpm2.TPMRCAuthUnavailable, "it opens by the policy alone")
			continue
		}
		require.NoError(t, err)
		require.True(t, b.shows(recognisable), "it would be seen")
	}
}

// unsealInTheClear opens the key of a file as one would without a session.
func unsealInTheClear(t *testing.T, b *bus, data []byte) error {
	t.Helper()
	r, err := tpm.Decode(data)
	require.NoError(t, err)
	public, private := tpm.Parts(r)
	line, err := linuxudstpm.Open(b.path)
	require.NoError(t, err)
	primary, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(line)
	require.NoError(t, err)
	loaded, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: primary.ObjectHandle, Name: primary.Name, Auth: tpm2.PasswordAuth(nil)},
		InPublic:     tpm2.BytesAs2B[tpm2.TPMTPublic](public), InPrivate: tpm2.TPM2BPrivate{Buffer: private},
	}.Execute(line)
	require.NoError(t, err)
	_, err = tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: loaded.ObjectHandle, Name: loaded.Name, Auth: tpm2.PasswordAuth(nil)}}.Execute(line)
	return err
}

// Without a salt whoever listens knows the key of a session: it is made of what was said.
func TestWhoListensLearnsNoKeyOfASession(t *testing.T) {
	for _, pcrs := range []string{"", "sha256:7"} {
		b := onBus(t, swtpmtest.Start(t))
		sessions := 0
		b.command = func(command []byte) {
			if code(command) == tpm2.TPMCCStartAuthSession {
				sessions++
				require.NotEqual(t, uint32(tpm2.TPMRHNull), binary.BigEndian.Uint32(command[10:]), "salted with nothing")
			}
		}
		_, _, err := b.store(t, filepath.Join(t.TempDir(), "kek.json"), pcrs).Create(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, 2, sessions)
	}
}

func code(command []byte) tpm2.TPMCC { return tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) }

// Who sits between answers with a storage key of their own, whose private half they know: what
// is sent would be encrypted for them.
func TestWhoSitsBetweenCannotPutAKeyOfTheirOwn(t *testing.T) {
	chip, theirs := swtpmtest.Start(t), swtpmtest.Start(t)
	b := onBus(t, chip)
	s := b.store(t, filepath.Join(t.TempDir(), "kek.json"), "")
	_, _, err := s.Create(t.Context(), false)
	require.NoError(t, err)
	was := wrap(t, s)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	their := theirStorageKey(t, theirs)
	sealed := false
	b.mu.Lock()
	b.change = func(command tpm2.TPMCC, answer []byte) []byte {
		sealed = sealed || command == tpm2.TPMCCCreate || command == tpm2.TPMCCUnseal
		if command == tpm2.TPMCCCreatePrimary {
			return withNameOf(their, answer)
		}
		return answer
	}
	b.mu.Unlock()
	requireTrouble(t, session, was, kmsplugin.ErrDenied, "somebody sits between")
	_, err = s.Rotate(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrDenied)
	require.False(t, sealed, "nothing secret was asked or told")
}

// withNameOf is one storage key, said to have the Name of another: that stands at the end, before an
// empty authorization.
func withNameOf(key, other []byte) []byte {
	const name, authorization = 34, 5
	end := len(other) - authorization
	return slices.Concat(key[:len(key)-authorization-name], other[end-name:end], key[len(key)-authorization:])
}

// theirStorageKey is another TPM's answer of one.
func theirStorageKey(t *testing.T, chip *swtpmtest.TPM) (answer []byte) {
	t.Helper()
	b := onBus(t, chip)
	b.change = func(command tpm2.TPMCC, is []byte) []byte {
		if command == tpm2.TPMCCCreatePrimary {
			answer = is
		}
		return is
	}
	_, _, err := b.store(t, filepath.Join(t.TempDir(), "kek.json"), "").Create(t.Context(), false)
	require.NoError(t, err)
	return answer
}

func TestWhoSitsBetweenCannotChangeAnAnswer(t *testing.T) {
	for _, command := range []tpm2.TPMCC{tpm2.TPMCCUnseal, tpm2.TPMCCCreate} {
		b := onBus(t, swtpmtest.Start(t))
		s := b.store(t, filepath.Join(t.TempDir(), "kek.json"), "")
		_, _, err := s.Create(t.Context(), false)
		require.NoError(t, err)
		b.mu.Lock()
		b.change = func(is tpm2.TPMCC, answer []byte) []byte {
			if is == command && len(answer) > 40 {
				answer[20] ^= 1
			}
			return answer
		}
		b.mu.Unlock()
		_, err = s.Rotate(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.ErrorContains(t, err, "incorrect authorization HMAC")
		infos, err := s.List()
		require.NoError(t, err)
		require.Len(t, infos, 1)
		require.False(t, errors.Is(err, tpm.ErrDamaged))
	}
}

// Whoever asks may go away while the TPM works.
func TestWhatWasLoadedIsFlushedAfterAnInterruption(t *testing.T) {
	for _, at := range []tpm2.TPMCC{tpm2.TPMCCCreatePrimary, tpm2.TPMCCLoad, tpm2.TPMCCStartAuthSession, tpm2.TPMCCUnseal} {
		chip := swtpmtest.Start(t)
		b := onBus(t, chip)
		s := b.store(t, filepath.Join(t.TempDir(), "kek.json"), "sha256:7")
		ctx, cancel := context.WithCancel(t.Context())
		b.command = func(command []byte) {
			if code(command) == at {
				cancel()
			}
		}
		_, _, err := s.Create(ctx, false)
		if at != tpm2.TPMCCUnseal {
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		}
		requireNothingLoaded(t, chip)
	}
}
