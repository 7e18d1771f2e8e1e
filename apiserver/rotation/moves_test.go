package rotation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
)

// mode is what a cluster can be written with: the flags that lead there, and how what is
// stored then begins.
type mode struct {
	name, begins string
	flags        []string
}

// modes are all there are: nothing, keys in the file, and plugins of both versions of KMS,
// of the newer one two. That of the older one has a name with a colon, as only it may.
func (c *cluster) modes(v1 string) []mode {
	return []mode{
		{"a", "k8s:enc:kms:v2:a:", []string{"--to=kms:a", "--endpoint", c.endpoint("{apiserver}", "a")}},
		{"aescbc", "k8s:enc:aescbc:v1:key-", []string{"--to=aescbc"}},
		{"aesgcm", "k8s:enc:aesgcm:v1:key-", []string{"--to=aesgcm"}},
		{"secretbox", "k8s:enc:secretbox:v1:key-", []string{"--to=secretbox"}},
		{"v1", "k8s:enc:kms:v1:old:v1:", []string{"--to=kms-v1:old:v1", "--endpoint", v1, "--plugin-checked"}},
		{"b", "k8s:enc:kms:v2:b:", []string{"--to=kms:b", "--endpoint", c.endpoint("{apiserver}", "b")}},
		{"identity", "k8s\x00", []string{"--to=identity"}},
	}
}

// way visits the modes: each once, or, if every is set, each from each other one. It begins
// and ends with the first.
func way(n int, every bool) (all []int) {
	if !every {
		for i := range n {
			all = append(all, i)
		}
		return append(all, 0)
	}
	left := make([][]int, n) // Hierholzer
	for i := range left {
		for j := range n {
			if i != j {
				left[i] = append(left[i], j)
			}
		}
	}
	for open := []int{0}; len(open) > 0; {
		at := open[len(open)-1]
		if len(left[at]) == 0 {
			all, open = append(all, at), open[:len(open)-1]
			continue
		}
		open = append(open, left[at][0])
		left[at] = left[at][1:]
	}
	return all
}

func TestAWayVisitsEveryPair(t *testing.T) {
	pairs := map[[2]int]bool{}
	all := way(7, true)
	for i := range len(all) - 1 {
		require.NotEqual(t, all[i], all[i+1])
		pairs[[2]int{all[i], all[i+1]}] = true
	}
	require.Len(t, pairs, 7*6)
	require.Len(t, all, 7*6+1)
}

// Whatever writes, whatever shall write: no request fails, and every value can be read.
func TestEveryMoveWhileTheClusterServes(t *testing.T) {
	t.Parallel()
	a, b := newKeys(t), newKeys(t)
	c := plan{provider: "a", keys: a, resources: []string{"secrets"}, programs: []string{harness.HurriedServer}, flags: []string{"--feature-gates=KMSv1=true"}}.start(t)
	c.startPlugins(t, "b", b)
	v1 := harness.StartKMSv1(t, "v1")
	v1 = v1[strings.Index(v1, "unix://"):]
	modes := c.modes(v1[:strings.Index(v1, `"`)])
	load := startLoad(t, c)
	all := way(len(modes), *long)
	for i, to := range all[1:] {
		from := modes[all[i]]
		command := c.rotate(t, modes[to].flags[0], modes[to].flags[1:]...)
		traffic.Until(t, "the move is finished from "+from.name+" to "+modes[to].name, func() bool { return command.finished(t) })
		t.Logf("from %s to %s", from.name, modes[to].name)
		load.More(t, 10)
		c.requireBeginning(t, modes[to].begins)
	}
	load.RequireUndisturbed(t)
	load.RequireRead(t)
	c.restart()
	load.RequireRead(t)
}

// requireBeginning requires that all Secrets are stored so, and nothing else is encrypted.
func (c *cluster) requireBeginning(t *testing.T, begins string) {
	t.Helper()
	found, err := c.etcds[0].client.Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range found.Kvs {
		if strings.Contains(string(kv.Key), "/secrets/") || strings.HasPrefix(string(kv.Value), "k8s:enc:") {
			require.True(t, strings.HasPrefix(string(kv.Value), begins), "%s begins with %.40q", kv.Key, kv.Value)
		}
	}
}
