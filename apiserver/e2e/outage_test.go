package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

const check = "/healthz/kms-providers"

func TestWithoutThePluginTheServerGoesOnAndSaysSo(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.StartPlugin(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets", plugin.KMS("one")))
	server := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})
	writeSecret(t, server, "before", password)
	requireStatus(t, server, http.StatusOK, check)

	require.NoError(t, plugin.Stop())
	text := waitForStatus(t, server, http.StatusInternalServerError, check)
	require.Contains(t, text, `"one"`, "the text names the provider")
	require.Regexp(t, `since 20[0-9-]+T.* writes go on for 1[0-9]{2} s`, text)

	require.Equal(t, password, readSecret(t, server, "before"))
	writeSecret(t, server, "meanwhile", password)
	require.Equal(t, password, readSecret(t, server, "meanwhile"))
	sealedAt(t, etcd, secretKey("meanwhile"), "one", password)

	requireStatus(t, server, http.StatusInternalServerError, "/readyz")
	requireStatus(t, server, http.StatusInternalServerError, "/readyz/kms-providers")
	requireStatus(t, server, http.StatusOK, "/readyz?exclude=kms-providers")
	requireStatus(t, server, http.StatusOK, "/livez")
	requireStatus(t, server, http.StatusNotFound, "/livez/kms-providers")

	require.NoError(t, plugin.Start(t.Context()))
	waitForStatus(t, server, http.StatusOK, check)
	requireStatus(t, server, http.StatusOK, "/readyz")
}

func TestStartWithoutThePluginIsNotReadyUntilItComes(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.NewPlugin(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets", plugin.KMS("one")))
	server := harness.Launch(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})

	server.WaitFor("/livez")
	server.WaitFor("/readyz?exclude=kms-providers")
	requireStatus(t, server, http.StatusInternalServerError, "/readyz")
	_, text := server.Get(check)
	require.Contains(t, text, `"one"`, "the text names the provider")

	require.NoError(t, plugin.Start(t.Context()))
	server.WaitFor("/readyz")
	writeSecret(t, server, "first", password)
	sealedAt(t, etcd, secretKey("first"), "one", password)
}

func requireStatus(t *testing.T, s *harness.Server, want int, path string) {
	t.Helper()
	status, text := s.Get(path)
	require.Equal(t, want, status, "%s answers: %s", path, text)
}

func waitForStatus(t *testing.T, s *harness.Server, want int, path string) (text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var status int
		status, text = s.Get(path)
		return status == want
	}, patience, tick)
	return text
}
