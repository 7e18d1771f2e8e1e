package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
	"github.com/kube-atrest/atrest/operate/migrate"
)

var (
	ofWidgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	begun     = migrate.Checkpoint{Resource: ofWidgets, Goal: "new", Continue: "token", Last: migrate.Object{Namespace: "a", Name: "b"}}
)

func TestACheckpointIsGoneOnFromOrLeft(t *testing.T) {
	file := checkpointFile{folder: filepath.Join(t.TempDir(), "new", "state"), resource: ofWidgets.GroupResource()}
	load := func(version schema.GroupVersionResource, goal string) migrate.Checkpoint {
		c, err := file.load(version, goal)
		require.NoError(t, err)
		return c
	}
	require.Zero(t, load(ofWidgets, "new"), "there is none yet")
	require.NoError(t, file.save(begun))
	require.Equal(t, begun, load(ofWidgets, "new"))

	other := ofWidgets
	other.Version = "v2"
	require.Zero(t, load(other, "new"), "of another version")
	require.Zero(t, load(ofWidgets, "newer"), "for something else")
	for name, change := range map[string]func(*migrate.Checkpoint){
		"finished":      func(c *migrate.Checkpoint) { c.Done = true },
		"with failures": func(c *migrate.Checkpoint) { c.Counts.Failed = 1 },
	} {
		changed := begun
		change(&changed)
		require.NoError(t, file.save(changed))
		require.Zero(t, load(ofWidgets, "new"), name)
	}

	info, err := os.Stat(file.path())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	all, err := os.ReadDir(file.folder)
	require.NoError(t, err)
	require.Len(t, all, 1, "nothing is left beside it")
}

func TestWithoutAFolderNothingIsKept(t *testing.T) {
	file := checkpointFile{resource: ofWidgets.GroupResource()}
	require.NoError(t, file.save(begun))
	c, err := file.load(ofWidgets, "new")
	require.NoError(t, err)
	require.Zero(t, c)
}

func TestACheckpointStaysInItsFolder(t *testing.T) {
	file := checkpointFile{folder: "state", resource: schema.GroupResource{Group: "../..", Resource: "a/b"}}
	require.Equal(t, "state", filepath.Dir(file.path()))
}

func TestWhatNeedsItIsKnownByName(t *testing.T) {
	server := etcdtest.Start(t)
	server.Store("/registry/example.com/widgets/a/stale", []byte("{}"))
	server.Store("/registry/example.com/widgets/a/fine", []byte("k8s:enc:aesgcm:v1:k:0123456789012345678901234567"))
	server.Store("/registry/example.com/widgetsandmore/a/other", []byte("{}"))
	server.Store("/registry/example.com/widgets/of-the-cluster", []byte("{}"))
	from, err := etcd.Dial(etcd.Options{Endpoints: []string{server.Endpoint()}})
	require.NoError(t, err)
	t.Cleanup(from.Close)
	r := &rewriter{streams: streams{err: &bytes.Buffer{}}, from: from, layout: audit.NewLayout("", nil)}
	needy, err := r.needy(t.Context(), ofWidgets.GroupResource(), func(f audit.Form) bool { return f.Kind == audit.Plaintext })
	require.NoError(t, err)
	require.Equal(t, 2, needy.len())
	for o, want := range map[migrate.Object]bool{
		{Namespace: "a", Name: "stale"}: true, {Name: "of-the-cluster"}: true,
		{Namespace: "a", Name: "fine"}: false, {Namespace: "a", Name: "other"}: false, {Namespace: "b", Name: "stale"}: false,
	} {
		require.Equal(t, want, needy.has(o), o)
	}
}

func TestResourcesAreCountedTogether(t *testing.T) {
	server := etcdtest.Start(t)
	server.Store("/registry/secrets/a/b", []byte("{}"))
	server.Store("/registry/configmaps/a/b", []byte("{ }"))
	server.Store("/registry/pods/a/b", []byte("{}"))
	from, err := etcd.Dial(etcd.Options{Endpoints: []string{server.Endpoint()}})
	require.NoError(t, err)
	t.Cleanup(from.Close)
	r := &rewriter{streams: streams{err: &bytes.Buffer{}}, from: from, layout: audit.NewLayout("", nil)}
	some, err := r.count(t.Context(), []schema.GroupResource{{Resource: "secrets"}, {Resource: "configmaps"}})
	require.NoError(t, err)
	require.Equal(t, int64(2), some.Objects)
	require.Equal(t, int64(5), some.Bytes)
	require.Equal(t, "/registry/", some.Prefix)
	require.Len(t, some.Resources, 2)
	all, err := r.count(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, int64(3), all.Objects)
}

func TestLinesAboutARunThatNobodyWatches(t *testing.T) {
	var stderr bytes.Buffer
	show, end := rewriting(&stderr, "secrets")
	p := migrate.Progress{Counts: migrate.Counts{Seen: 50, Rewritten: 40}, Total: 100, PerSecond: 4, Left: 12500 * time.Millisecond}
	for _, at := range []time.Duration{time.Second, 10 * time.Second, 11 * time.Second, 25 * time.Second} {
		p.Elapsed = at
		show(p)
	}
	end()
	const line = "secrets: 50 of 100 objects, 40 rewritten, 4/s, 13s left\n"
	require.Equal(t, line+line+"secrets: 40 rewritten, 0 unchanged, 0 gone, 0 failed, in 25s\n", stderr.String())
	p.Left, p.Total = -1, 0
	require.Equal(t, "50 of 50 objects, 40 rewritten, 4/s, time left not known", rewritingText(p))
}
