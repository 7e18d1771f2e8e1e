package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// Vault may be reached by a name that its certificate has not.
func TestTheNameInTheCertificateIsThatOfTheFlag(t *testing.T) {
	v, flags := inVault(t)
	flags = append(flags, "--vault-address", strings.Replace(v.Address, "127.0.0.1", "localhost", 1))
	got := runCommand(t, append([]string{"vault", "check"}, flags...)...)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "give the server name that its certificate has")
	got = runCommand(t, append([]string{"vault", "check", "--tls-sni", "vault.test"}, flags...)...)
	require.Equal(t, exitDone, got.code, got.stderr)
}

// Of so many calls as --concurrency allows, no more are made at once; the others wait and say so.
func TestNoMoreCallsOfVaultRunAtOnceThanTheFlagSays(t *testing.T) {
	v, flags := inVault(t)
	endpoint := plugintest.Endpoint(t)
	code, log := serveGroup(t, "vault", append(flags, "--listen", endpoint, "--concurrency", "1"), func() {
		client := plugintest.Dial(t, endpoint)
		require.Eventually(t, func() bool {
			_, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
			return err == nil
		}, time.Minute, time.Millisecond)
		v.Faults().Hang("transit/encrypt")
		defer v.Faults().Clear()
		require.Eventually(t, func() bool {
			var said [8]string
			var all sync.WaitGroup
			for i := range said {
				all.Go(func() {
					_, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
					if err != nil {
						said[i] = err.Error()
					}
				})
			}
			all.Wait()
			return strings.Contains(strings.Join(said[:], "\n"), "all 1 calls that may run at once do")
		}, time.Minute, time.Millisecond)
	})
	require.Equal(t, exitDone, code, log)
}
