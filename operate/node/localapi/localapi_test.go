package localapi

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/operate/rotation"
)

func TestOnlyALoopbackAddressIsAsked(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	for _, address := range []string{"https://10.0.0.1:6443", "https://localhost:6443", "https://api.example.com:6443", "127.0.0.1:6443", ""} {
		_, err := New(address, IdentityOf("cp-1"), &rest.Config{}, clk)
		require.Error(t, err, address)
	}
	_, err := New("https://127.0.0.1:6443", "cp-1", &rest.Config{}, clk)
	require.ErrorContains(t, err, "is no hash")
	asker, err := New("https://[::1]:6443", IdentityOf("cp-1"), &rest.Config{}, clk)
	require.NoError(t, err)
	require.Equal(t, "[::1]:6443", asker.Name())
}

func TestAnAnswerOfAnotherOrOfNobodyIsNone(t *testing.T) {
	mine := IdentityOf("cp-1")
	for why, i := range map[string]rotation.Instance{
		"load balancer":     {Server: IdentityOf("cp-2"), ConfigHash: "c"},
		"does not tell who": {ConfigHash: "c"},
		"it is away":        {Server: mine, ConfigHash: "c", Problem: "it is away"}, // what it told before does not count
	} {
		l := &local{"a", mine, func(context.Context) map[string]rotation.Instance { return map[string]rotation.Instance{"a": i} }}
		_, err := l.Ask(t.Context())
		require.ErrorContains(t, err, why)
	}
	l := &local{"a", mine, func(context.Context) map[string]rotation.Instance {
		return map[string]rotation.Instance{"a": {Server: mine, Process: "p", ConfigHash: "c"}}
	}}
	answer, err := l.Ask(t.Context())
	require.NoError(t, err)
	require.Equal(t, "c", answer.Config)
}
