// Package operator holds atrest's tool to a real etcd and to real apiservers: what
// the audit and the command make of etcd, of its compaction and of its snapshots,
// and what an apiserver makes of the requests that have an object stored again.
package operator

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	auditetcd "github.com/kube-atrest/atrest/operate/audit/etcd"
	"github.com/kube-atrest/atrest/operate/audit/snapshot"
	"github.com/kube-atrest/atrest/providers"
)

// objects is how many Secrets are stored; the figures in docs/atrest.md are of 50,000.
var objects = flag.Int("objects", 1500, "how many Secrets to store")

// cluster is an etcd with Secrets under a key-file plugin.
type cluster struct {
	*etcd.Server
	stop   func()
	plugin *local.Plugin
	config string // path
	data   string // folder
}

func start(t *testing.T) cluster {
	t.Helper()
	sockets, err := os.MkdirTemp("", "op") // t.TempDir is too long a name for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(sockets)) })
	data := filepath.Join(t.TempDir(), "data")
	server, err := etcd.Start(t.Context(), etcd.Options{DataDir: data, SocketDir: sockets, Volatile: true})
	require.NoError(t, err)
	stop := sync.OnceFunc(server.Close)
	t.Cleanup(stop)
	plugin, err := local.NewPlugin(t.Context(), filepath.Join(t.TempDir(), "keys"), filepath.Join(sockets, "kms.sock"))
	require.NoError(t, err)
	require.NoError(t, plugin.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, plugin.Stop()) })
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: keyfile, endpoint: "unix://%s"}
  - identity: {}
`, filepath.Join(sockets, "kms.sock")), 0o600))
	return cluster{server, stop, plugin, file, data}
}

// fill stores n Secrets of 1 KiB as an apiserver does.
func (c cluster) fill(t *testing.T, n int) {
	t.Helper()
	content, err := os.ReadFile(c.config)
	require.NoError(t, err)
	parsed, err := config.Parse(content, config.Options{})
	require.NoError(t, err)
	transformers, err := providers.Build(parsed, providers.Options{})
	require.NoError(t, err)
	defer transformers.Close()
	transformers.Commit(func() {})
	require.NoError(t, transformers.Prepare(t.Context()))
	transformer := transformers.TransformerForResource(schema.GroupResource{Resource: "secrets"})
	var batch []clientv3.Op
	for i := range n {
		namespace, name := fmt.Sprintf("namespace-%02d", i%20), fmt.Sprintf("secret-%06d", i)
		key := "/registry/secrets/" + namespace + "/" + name
		sealed, err := transformer.TransformToStorage(t.Context(), secret(t, namespace, name), value.DefaultContext(key))
		require.NoError(t, err)
		if batch = append(batch, clientv3.OpPut(key, string(sealed))); len(batch) == 100 || i == n-1 {
			_, err := c.Client().Txn(t.Context()).Then(batch...).Commit()
			require.NoError(t, err)
			batch = nil
		}
	}
}

func (c cluster) dial(t *testing.T) *auditetcd.Store {
	t.Helper()
	s, err := auditetcd.Dial(auditetcd.Options{Endpoints: []string{c.Endpoint()}})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// save is etcdctl snapshot save. etcd sends the SHA-256 along.
func (c cluster) save(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup.db")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	stream, err := c.Client().Snapshot(t.Context())
	require.NoError(t, err)
	defer stream.Close()
	n, err := io.Copy(file, stream)
	require.NoError(t, err)
	require.Equal(t, int64(sha256.Size), n%512)
	return path
}

func TestARealEtcdAndItsSnapshotAreCountedAlike(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.fill(t, *objects)
	for _, put := range [][2]string{{"/registry/pods/default/a", "{}"}, {"/registry/pods/default/a", "{ }"}, {"/registry/pods/default/gone", "{}"}, {"/other", "{}"}} {
		_, err := c.Client().Put(t.Context(), put[0], put[1])
		require.NoError(t, err)
	}
	_, err := c.Client().Delete(t.Context(), "/registry/pods/default/gone")
	require.NoError(t, err)

	before := allocated()
	peak := uint64(0)
	live, err := audit.Run(t.Context(), c.dial(t), audit.Options{Progress: func(done, _ int64) {
		if done%5000 == 0 {
			peak = max(peak, allocated())
		}
	}})
	require.NoError(t, err)
	t.Logf("%d objects, %d bytes, up to %d bytes of memory", live.Objects, live.Bytes, int64(peak)-int64(before))
	require.Equal(t, int64(*objects)+1, live.Objects)
	require.Equal(t, config.KMSv2, live.Resources[1].Forms[0].Kind)
	require.Equal(t, int64(1), live.Resources[1].Forms[0].DEKs)

	backup, err := snapshot.Open(t.Context(), c.save(t))
	require.NoError(t, err)
	defer backup.Close()
	saved, err := audit.Run(t.Context(), backup, audit.Options{})
	require.NoError(t, err)
	require.NotZero(t, live.Cluster)
	live.Cluster = 0 // a snapshot names none
	require.Equal(t, live, saved)
}

func allocated() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestTheDatabaseOfAStoppedMemberIsRead(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.fill(t, 200)
	live, err := audit.Run(t.Context(), c.dial(t), audit.Options{})
	require.NoError(t, err)
	c.stop()
	db, err := snapshot.Open(t.Context(), filepath.Join(c.data, "member", "snap", "db"))
	require.NoError(t, err)
	defer db.Close()
	left, err := audit.Run(t.Context(), db, audit.Options{})
	require.NoError(t, err)
	live.Cluster = 0
	require.Equal(t, live, left)
}

func TestARealCompactionEndsTheWalk(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.fill(t, 200)
	contents, err := c.dial(t).Read(t.Context(), "/registry/")
	require.NoError(t, err)
	seen := 0
	for _, err = range contents.Objects {
		if seen++; seen == 10 {
			later, err := c.Client().Put(t.Context(), "/registry/secrets/later", "{}")
			require.NoError(t, err)
			_, err = c.Client().Compact(t.Context(), later.Header.Revision, clientv3.WithCompactPhysical())
			require.NoError(t, err)
		}
	}
	require.ErrorIs(t, err, auditetcd.ErrCompacted)
}

// command is the built atrest, which has to end with the wanted exit code, any if
// that is negative. It logs what each run took.
func command(t *testing.T) func(want int, args ...string) (stdout, stderr string) {
	t.Helper()
	program := harness.Atrest(t)
	return func(want int, args ...string) (string, string) {
		var stdout, stderr strings.Builder
		command := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
		command.Stdout, command.Stderr = &stdout, &stderr
		began := time.Now()
		require.NoError(t, command.Start())
		memory := peak(command.Process.Pid)
		_ = command.Wait()
		t.Logf("atrest %s: %s, up to %s of memory", args[0], time.Since(began).Round(time.Millisecond), memory())
		if want >= 0 {
			require.Equal(t, want, command.ProcessState.ExitCode(), stdout.String()+stderr.String())
		}
		return stdout.String(), stderr.String()
	}
}

func TestTheCommandOnARealEtcd(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.fill(t, *objects)
	atrest := command(t)
	const key = "/registry/secrets/namespace-07/secret-000007"
	backup := c.save(t)

	out, _ := atrest(0, "audit", "--endpoints", c.Endpoint(), "--config", c.config, "--decrypt", "--strict", "--rate", "0")
	require.Regexp(t, fmt.Sprintf(`secrets +%d +kms v2 +keyfile .* dek +1 .* all`, *objects), out)
	out, _ = atrest(0, "check", c.config, "--endpoints", c.Endpoint(), "--rate", "0")
	require.Contains(t, out, "usable: "+c.config)
	for _, from := range [][]string{{"--endpoints", c.Endpoint()}, {"--snapshot", backup}} {
		out, _ = atrest(0, append([]string{"decrypt", "--config", c.config, "--key", key}, from...)...)
		require.True(t, strings.HasPrefix(out, "k8s\x00"))
		require.Contains(t, out, "xxx")
	}

	require.NoError(t, c.plugin.Rotate(t.Context()))
	out, _ = atrest(1, "audit", "--endpoints", c.Endpoint(), "--config", c.config, "--decrypt", "--strict", "--rate", "0")
	require.Contains(t, out, fmt.Sprintf("secrets: %d outdated", *objects))
	require.NoError(t, c.plugin.Stop())
	_, text := atrest(1, "check", c.config, "--snapshot", backup, "--rate", "0")
	require.Contains(t, text, "start the plugin")
	require.Contains(t, text, fmt.Sprintf("%d not opened", *objects))
}

// peak follows the most memory that a process had until it ends. What wait(2)
// tells of it counts that of this process, too.
func peak(pid int) (ended func() string) {
	most := make(chan string, 1)
	go func() {
		last := "an unknown amount"
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, rest, has := strings.Cut(string(status), "VmHWM:")
			if err != nil || !has { // it has ended
				most <- last
				return
			}
			line, _, _ := strings.Cut(rest, "\n")
			last = strings.TrimSpace(line)
			time.Sleep(5 * time.Millisecond) // between two looks
		}
	}()
	return func() string { return <-most }
}
