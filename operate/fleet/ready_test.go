package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoIsNotReadyIsNamed(t *testing.T) {
	for answer, want := range map[reply]string{
		{200, "ok"}: "",
		{500, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/a failed: reason withheld\nreadyz check failed\n"}: "/readyz: 500 Internal Server Error: etcd, poststarthook/a failed",
		{503, "shutting down"}: "/readyz: 503 Service Unavailable: shutting down",
		{500, ""}:              "/readyz: 500 Internal Server Error: it says no more",
		{403, "no"}:            "/readyz: 403 Forbidden: the user needs the verb get for the nonResourceURL /readyz",
	} {
		f, _ := newFleet(t, newServer(t, map[string]reply{"/readyz": answer}))
		require.Equal(t, want, f.Unready(t.Context())["a"])
	}
	away := newServer(t, nil)
	away.Close()
	f, _ := newFleet(t, newServer(t, map[string]reply{"/readyz": {200, "ok"}}), away)
	unready := f.Unready(t.Context())
	require.Len(t, unready, 1)
	require.Contains(t, unready["b"], "is it up, and can it be reached from here?")
}

// A kube-apiserver that follows its file has a hook for that.
func TestWhoDoesNotFollowItsFileTellsSo(t *testing.T) {
	const hook = "/readyz/poststarthook/start-encryption-provider-config-automatic-reload"
	for answer, fixed := range map[reply]bool{{200, "ok"}: false, {404, "404 page not found"}: true, {500, "not finished"}: false, {403, "no"}: false} {
		s := newServer(t, map[string]reply{hook: answer, "/readyz/kms-providers": {200, "ok"}, "/metrics": metrics()})
		require.Equal(t, fixed, observe(t, s).Fixed, answer)
	}
}
