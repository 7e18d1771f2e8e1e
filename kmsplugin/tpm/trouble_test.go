package tpm_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// requireTrouble: the session says what is wrong, and reads what it read before.
func requireTrouble(t *testing.T, session kmsplugin.Session, s sealed, class error, says string) {
	t.Helper()
	_, err := session.Versions(t.Context())
	require.ErrorIs(t, err, class)
	require.ErrorContains(t, err, says)
	requireOpens(t, session, s)
}

func TestAMachineThatBootsOtherwiseIsToldSoAndIsRecovered(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "sha256:7,11")
	was := wrap(t, s)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	extend(t, chip, 11)
	requireTrouble(t, session, was, kmsplugin.ErrKeyDisabled, "PCR [11] of sha256: ")

	// A plugin that starts then reads nothing, and nothing can be rotated.
	restarted, versions, err := looked(t, s)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.ErrorContains(t, err, "recovery key (recover)")
	require.Empty(t, versions.All)
	_, err = s.Rotate(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)

	info, err := s.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	require.Equal(t, was.version.KeyID(), info.KeyID)
	require.Equal(t, "sha256:7,11", info.PCRs)
	for _, session := range []kmsplugin.Session{session, restarted} {
		_, err = session.Versions(t.Context())
		require.NoError(t, err)
		requireOpens(t, session, was)
	}
	// Booted as it was when the keys were sealed last.
	chip.Off()
	chip.On()
	_, err = session.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	extend(t, chip, 11)
	_, err = session.Versions(t.Context())
	require.NoError(t, err)
}

func TestAClearedTPMIsToldAndAnotherOneTakesOverAllKeys(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	first := wrap(t, s)
	_, err := s.Rotate(t.Context())
	require.NoError(t, err)
	second := wrap(t, s)
	require.NotEqual(t, first.version, second.version)
	session, versions, err := looked(t, s)
	require.NoError(t, err)
	clearTPM(t, chip)
	requireTrouble(t, session, second, kmsplugin.ErrDenied, "it was cleared")
	requireTrouble(t, session, first, kmsplugin.ErrDenied, "recovery key (recover)")
	_, err = s.Rotate(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrDenied)

	other := at(t, swtpmtest.Start(t), s.Path(), "")
	_, err = other.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	moved, same, err := looked(t, other)
	require.NoError(t, err)
	require.Equal(t, versions, same, "all key_ids, and the one that writes")
	requireOpens(t, moved, first)
	requireOpens(t, moved, second)
	_, err = other.Rotate(t.Context())
	require.NoError(t, err)
}

func TestATPMThatIsAwayIsNoEndOfReading(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, _ := created(t, chip, "")
	was := wrap(t, s)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	chip.Off()
	requireTrouble(t, session, was, kmsplugin.ErrUnavailable, "is its process running?")
	_, err = s.Rotate(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	chip.On()
	_, err = session.Versions(t.Context())
	require.NoError(t, err)
	_, err = s.Rotate(t.Context())
	require.NoError(t, err)
	versions, err := session.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, versions.All, 2)
}

func TestWhatIsNoTPMIsToldApart(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for device, want := range map[string]struct {
		class error
		says  string
	}{
		filepath.Join(folder, "none"): {kmsplugin.ErrUnavailable, "switch it on in the firmware"},
		file:                          {kmsplugin.ErrUnavailable, "/dev/tpmrm0"},
		"/dev/null":                   {kmsplugin.ErrUnavailable, "TPM"},
	} {
		s, err := tpm.New(tpm.Config{Device: device, File: filepath.Join(folder, "kek.json")})
		require.NoError(t, err)
		_, _, err = s.Create(t.Context(), false)
		require.ErrorIs(t, err, want.class, device)
		require.ErrorContains(t, err, want.says)
		require.NoFileExists(t, s.Path())
	}
}

// Whatever a TPM, or who sits between, answers: at first, or later.
func TestNonsenseFromATPMIsAnError(t *testing.T) {
	answers := []string{"", "\x80\x01", "\x80\x01\x00\x00\x00\x0a\x00\x00\x00\x00", "\x80\x02\xff\xff\xff\xff\x00\x00\x00\x00" + strings.Repeat("x", 5000),
		"\x80\x02\x00\x00\x00\x14\x00\x00\x00\x00" + strings.Repeat("\xff", 10), "\x80\x01\x00\x00\x00\x0a\x00\x00\x09\x21", "\x80\x01\x00\x00\x00\x0a\x00\x00\x09\x02"}
	for _, first := range []string{"", "\x80\x01\x00\x00\x00\x0d\x00\x00\x00\x00\x00\x01\x07"} {
		path := filepath.Join(shortFolder(t), "tpm.sock")
		listener, err := net.Listen("unix", path)
		require.NoError(t, err)
		go func() {
			for _, answer := range answers {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				for _, answer := range []string{first, answer} {
					if answer != "" || first != "" {
						_, _ = connection.Read(make([]byte, 4096))
						_, _ = connection.Write([]byte(answer))
					}
				}
				connection.Close()
			}
		}()
		t.Cleanup(func() { listener.Close() })
		s, err := tpm.New(tpm.Config{Device: path, File: filepath.Join(t.TempDir(), "kek.json")})
		require.NoError(t, err)
		for n := range answers {
			_, _, err := s.Create(t.Context(), false)
			class := kmsplugin.ErrUnavailable
			if n >= len(answers)-2 {
				class = kmsplugin.ErrThrottled // it is locked, or full
			}
			require.ErrorIs(t, err, class, n)
		}
	}
}

// A TPM has many words for that. One that is asked again says the same, so that it is no outage.
func TestAKeyThatTheTPMDoesNotTakeIsDamagedAndIsRecovered(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey, first, _ := rotated(t, chip)
	r := read(t, s)
	r.Writes = r.Keys[0].ID()
	public, private := tpm.Parts(r)
	r = read(t, s)
	changed := func(part []byte, at int) []byte {
		part = bytes.Clone(part)
		part[at] ^= 0x55
		return part
	}
	for says, spoiled := range map[string]*tpm.Ring{
		"TPM_RC_SIZE":          tpm.Spoiled(r, public, changed(private, 0)),
		"TPM_RC_INSUFFICIENT":  tpm.Spoiled(r, public, private[:1]),
		"TPM_RC_INTEGRITY":     tpm.Spoiled(r, public, changed(private, 60)),
		"TPM_RC_RESERVED_BITS": tpm.Spoiled(r, changed(public, 6), private),
	} {
		backup := at(t, chip, written(t, spoiled), "")
		session, found, err := looked(t, backup)
		require.ErrorIs(t, err, tpm.ErrDamaged, says)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "(recover)")
		require.Len(t, found.All, 1, "the other one is opened")
		_, err = backup.Recover(t.Context(), recoveryKey, "")
		require.NoError(t, err, says)
		_, err = session.Versions(t.Context())
		require.NoError(t, err)
		requireOpens(t, session, first)
	}
}

func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "tpm")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	return folder
}

// A swtpm has nobody between that would do it, nor has /dev/tpm0.
func TestWhatWasLoadedIsFlushed(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "sha256:7")
	for range 5 {
		_, err := s.Rotate(t.Context())
		require.NoError(t, err)
		_, _, err = looked(t, s)
		require.NoError(t, err)
		_, err = s.Recover(t.Context(), recoveryKey, "")
		require.NoError(t, err)
	}
	extend(t, chip, 7)
	for range 5 {
		_, _, err := looked(t, s)
		require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	}
	requireNothingLoaded(t, chip)
}

func requireNothingLoaded(t *testing.T, chip *swtpmtest.TPM) {
	t.Helper()
	line, err := linuxudstpm.Open(chip.Device())
	require.NoError(t, err)
	for name, kind := range map[string]tpm2.TPMHandle{"objects": 0x80000000, "sessions": 0x02000000, "saved sessions": 0x03000000} {
		answer, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: uint32(kind), PropertyCount: 10}.Execute(line)
		require.NoError(t, err)
		handles, err := answer.CapabilityData.Data.Handles()
		require.NoError(t, err)
		require.Empty(t, handles.Handle, name)
	}
}

func TestAFullTPMIsTold(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, _ := created(t, chip, "")
	line, err := linuxudstpm.Open(chip.Device())
	require.NoError(t, err)
	for range 3 {
		_, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(line)
		require.NoError(t, err)
	}
	_, _, err = looked(t, s)
	require.ErrorIs(t, err, kmsplugin.ErrThrottled)
	require.ErrorContains(t, err, "/dev/tpmrm0")
}

func TestAnOwnerWithAPasswordIsTold(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, _ := created(t, chip, "")
	line, err := linuxudstpm.Open(chip.Device())
	require.NoError(t, err)
	_, err = tpm2.HierarchyChangeAuth{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}, NewAuth: tpm2.TPM2BAuth{Buffer: []byte("secret")}}.Execute(line)
	require.NoError(t, err)
	_, _, err = looked(t, s)
	require.ErrorIs(t, err, kmsplugin.ErrDenied)
	require.ErrorContains(t, err, "tpm2_changeauth -c owner")
}

func TestABankThatTheTPMDoesNotKeepIsTold(t *testing.T) {
	s := store(t, swtpmtest.Start(t), "sha512:7")
	_, _, err := s.Create(t.Context(), true)
	if err == nil {
		t.Skip("this TPM keeps it")
	}
	require.ErrorContains(t, err, "does not keep this bank")
}

func TestAFileThatIsLostIsATrouble(t *testing.T) {
	s, _ := created(t, swtpmtest.Start(t), "")
	was := wrap(t, s)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.NoError(t, os.Remove(s.Path()))
	requireTrouble(t, session, was, kmsplugin.ErrUnavailable, "restore it from a copy")
	_, _, err = s.Create(t.Context(), false)
	require.NoError(t, err)
	requireTrouble(t, session, was, kmsplugin.ErrUnavailable, "no longer has version")
	require.NoError(t, os.WriteFile(s.Path(), data, 0o644))
	require.NoError(t, os.Chmod(s.Path(), 0o644))
	requireTrouble(t, session, was, kmsplugin.ErrUnavailable, "chmod 600")
	require.NoError(t, os.Chmod(s.Path(), 0o600))
	_, err = session.Versions(t.Context())
	require.NoError(t, err)
}

func TestWrongSettingsAreTold(t *testing.T) {
	for pcrs, says := range map[string]string{
		"7": "a bank and numbers", "md5:7": "banks are", "sha256:": "no number", "sha256:24": "from 0 to 23",
		"sha256:-1": "no number", "sha256:0,1,2,3,4,5,6,7,8": "at most 8", "sha256:16": "resets [16] at any time", "sha384:7,23": "resets [23]", strings.Repeat("x", 1000): "banks are",
	} {
		_, err := tpm.New(tpm.Config{Device: "d", File: "f", PCRs: pcrs})
		require.ErrorIs(t, err, tpm.ErrConfig)
		require.ErrorContains(t, err, says)
		require.Less(t, len(fmt.Sprint(err)), 300)
	}
	_, err := tpm.New(tpm.Config{Device: "d"})
	require.ErrorIs(t, err, tpm.ErrConfig)
	_, err = tpm.New(tpm.Config{Device: "d", File: "f", Check: -1})
	require.ErrorIs(t, err, tpm.ErrConfig)
}
