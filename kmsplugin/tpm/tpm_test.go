package tpm_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/conformance/conformancetest"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

var dek = []byte("a DEK of exactly thirty-two byte")

// often looks more often than a plugin would.
func often() kmsplugin.Config {
	config := tpm.KeeperConfig()
	config.Poll = 20 * time.Millisecond
	return config
}

// store is one for a TPM, whose file is not there yet. Each look asks the TPM.
func store(t *testing.T, chip *swtpmtest.TPM, pcrs string) *tpm.Store {
	t.Helper()
	return at(t, chip, filepath.Join(t.TempDir(), "kek.json"), pcrs)
}

func at(t *testing.T, chip *swtpmtest.TPM, path, pcrs string) *tpm.Store {
	t.Helper()
	s, err := tpm.New(tpm.Config{Device: chip.Device(), File: path, PCRs: pcrs, Check: time.Nanosecond})
	require.NoError(t, err)
	return s
}

// created is a store with one key, and its recovery key.
func created(t *testing.T, chip *swtpmtest.TPM, pcrs string) (s *tpm.Store, recoveryKey string) {
	t.Helper()
	s = store(t, chip, pcrs)
	_, recoveryKey, err := s.Create(t.Context(), true)
	require.NoError(t, err)
	return s, recoveryKey
}

// looked is a session that was looked at once.
func looked(t *testing.T, s *tpm.Store) (kmsplugin.Session, kmsplugin.Versions, error) {
	t.Helper()
	session, err := s.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close(context.Background())) })
	versions, err := session.Versions(t.Context())
	return session, versions, err
}

// sealed is a DEK and what was made of it.
type sealed struct {
	version    kmsplugin.Version
	ciphertext []byte
}

func wrap(t *testing.T, s *tpm.Store) sealed {
	t.Helper()
	session, versions, err := looked(t, s)
	require.NoError(t, err)
	v := versions.All[versions.Writes]
	ciphertext, used, err := session.Wrap(t.Context(), v, dek, []byte(v.KeyID()))
	require.NoError(t, err)
	require.Equal(t, v, used)
	return sealed{v, ciphertext}
}

func requireOpens(t *testing.T, session kmsplugin.Session, s sealed) {
	t.Helper()
	got, err := session.Unwrap(t.Context(), s.version, s.ciphertext, []byte(s.version.KeyID()))
	require.NoError(t, err)
	require.Equal(t, dek, got)
}

// extend changes a PCR, as software that boots does.
func extend(t *testing.T, chip *swtpmtest.TPM, pcr tpm2.TPMHandle) {
	t.Helper()
	line, err := linuxudstpm.Open(chip.Device())
	require.NoError(t, err)
	defer line.Close()
	_, err = tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: pcr, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: make([]byte, 32)}}},
	}.Execute(line)
	require.NoError(t, err)
}

// clearTPM gives a TPM another seed.
func clearTPM(t *testing.T, chip *swtpmtest.TPM) {
	t.Helper()
	line, err := linuxudstpm.Open(chip.Device())
	require.NoError(t, err)
	defer line.Close()
	_, err = tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}}.Execute(line)
	require.NoError(t, err)
}

func TestConformance(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, _ := created(t, chip, "")
	endpoint := plugintest.Endpoint(t)
	serve := func() func() {
		keeper, err := kmsplugin.NewKeeper(s, often())
		require.NoError(t, err)
		rest := keeper.Start(t.Context())
		stop := plugintest.Serve(t, endpoint, keeper)
		return func() { stop(); require.NoError(t, rest()) }
	}
	stop := serve()
	t.Cleanup(func() { stop() })
	conformancetest.Run(t, conformance.Target{
		Endpoint: endpoint,
		Rotate:   func(ctx context.Context) error { _, err := s.Rotate(ctx); return err },
		Restart:  func(context.Context) error { stop(); stop = serve(); return nil },
		Breaks:   conformance.LossOfKMS,
		Break:    func(context.Context) error { chip.Off(); return nil },
		Mend:     func(context.Context) error { chip.On(); return nil },
		Recreate: func(ctx context.Context) error {
			stop()
			require.NoError(t, os.Remove(s.Path()))
			_, _, err := s.Create(ctx, false)
			stop = serve()
			return err
		},
	}, conformance.Options{})
}

func TestTheContractOfABackEnd(t *testing.T) {
	s, _ := created(t, swtpmtest.Start(t), "")
	plugintest.Test(t, plugintest.Backend{
		Open: func(t testing.TB) kmsplugin.Service { return plugintest.Keep(t, s, often()) },
		Rotate: func(t testing.TB) {
			_, err := s.Rotate(t.Context())
			require.NoError(t, err)
		},
	})
}
