package operator

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// two are kube-apiservers on one etcd, with a migrator that works through the first.
// The second may lag behind with its configuration.
type two struct {
	cluster
	t               *testing.T
	first, second   *harness.Server
	file, its       *harness.ConfigFile // those of the first and of the second
	current, former string              // what is in them
	atrest          func(want int, args ...string) (stdout, stderr string)
}

// startTwo has the second write plaintext, and the first what it should.
func startTwo(t *testing.T, c cluster) *two {
	t.Helper()
	kms := harness.Plugin{Plugin: c.plugin}.KMS("keyfile")
	w := &two{cluster: c, t: t, atrest: command(t)}
	w.current, w.former = harness.Entry("secrets", kms, harness.Identity), harness.Entry("secrets", harness.Identity, kms)
	w.file, w.its = harness.NewConfigFile(t, w.current), harness.NewConfigFile(t, w.former)
	w.first = harness.Launch(t, harness.Spec{Program: harness.StockServer, Host: "first", Etcd: c, Flags: append(w.file.Flags(), migrationFlags()...)})
	w.second = harness.Launch(t, harness.Spec{Program: harness.HurriedServer, Host: "second", Etcd: c, Flags: append(w.its.Flags(), migrationFlags()...)})
	w.first.WaitFor("/readyz")
	w.second.WaitFor("/readyz")
	startMigrator(t, w.first)
	return w
}

// args are those of a command that looks at what is stored.
func (w *two) args(command string, more ...string) []string {
	return append([]string{command, "--config", w.file.Path, "--endpoints", w.Endpoint(), "--rate", "0"}, more...)
}

// migrate leaves the rewriting to the migrator.
func (w *two) migrate(want int, apiservers string) (stdout, stderr string) {
	w.t.Helper()
	to := kubeconfigs(w.t, "first", map[string]*rest.Config{"first": w.first.Config, "second": w.second.Config})
	return w.atrest(want, w.args("migrate", "--storage-version-migrations", "--kubeconfig", to, "--apiservers", apiservers)...)
}

// succeeded is the migration of Secrets, which has to have succeeded, and the revisions
// between which the migrator was at work.
func (w *two) succeeded() (m *unstructured.Unstructured, from, to int64) {
	w.t.Helper()
	m, err := w.first.Dynamic.Resource(migrations).Get(w.t.Context(), migrationName, metav1.GetOptions{})
	require.NoError(w.t, err)
	conditions, _, err := unstructured.NestedSlice(m.Object, "status", "conditions")
	require.NoError(w.t, err)
	require.True(w.t, holds(conditions, "Succeeded"), "%v", conditions)
	began, _, err := unstructured.NestedString(m.Object, "status", "resourceVersion")
	require.NoError(w.t, err)
	from, err = strconv.ParseInt(began, 10, 64)
	require.NoError(w.t, err)
	to, err = strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	require.NoError(w.t, err)
	return m, from, to
}

func holds(conditions []any, condition string) bool {
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == condition && c["status"] == "True" {
			return true
		}
	}
	return false
}

// plaintext counts the Secrets that were stored so at a revision, or are now if that is
// 0, and had been written after another.
func (w *two) plaintext(after, at int64) (count int) {
	w.t.Helper()
	found, err := w.Client().Get(w.t.Context(), "/registry/secrets/", clientv3.WithPrefix(), clientv3.WithRev(at))
	require.NoError(w.t, err)
	for _, kv := range found.Kvs {
		if kv.ModRevision > after && !bytes.HasPrefix(kv.Value, []byte("k8s:enc:")) {
			count++
		}
	}
	return count
}

// write updates Secrets of this name through an apiserver, again and again, until it is
// told to end.
func (w *two) write(through *harness.Server, name string) (end func()) {
	w.t.Helper()
	const secrets = 50
	at := through.Kube.CoreV1().Secrets("kube-public")
	named := func(i int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", name, i%secrets)}, StringData: map[string]string{"write": strconv.Itoa(i)}}
	}
	for i := range secrets {
		if _, err := at.Create(w.t.Context(), named(i), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			require.NoError(w.t, err)
		}
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := secrets; ; i++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if _, err := at.Update(w.t.Context(), named(i), metav1.UpdateOptions{}); err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() {
		close(stop)
		require.NoError(w.t, <-ended)
	}
}

// The migrator of a real kube-controller-manager does what it is given. That it
// succeeded says nothing of what a second apiserver wrote that lagged behind, which is
// seen in etcd, and finished.
func TestARealMigratorIsGivenTheWorkAndNotBelieved(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.fill(t, *objects)
	require.NoError(t, c.plugin.Rotate(t.Context()))
	w := startTwo(t, c)
	createNamespaces(t, w.first)
	out, _ := w.atrest(1, w.args("audit", "--decrypt", "--strict")...)
	require.Contains(t, out, fmt.Sprintf("secrets: %d outdated", *objects))

	w.catchUp()
	w.finishes()
	done, _, _ := w.succeeded()
	require.Equal(t, "1", done.GetAnnotations()[migrate.RoundAnnotation])

	w.fallBack()
	stale := w.succeedsInVain(done)
	_, told := w.migrate(1, "first,second")
	require.Contains(t, told, "apiserver second has the configuration")
	out, _ = w.atrest(1, w.args("audit")...)
	require.Contains(t, out, fmt.Sprintf("secrets: %d in plaintext", stale))

	w.catchUp()
	w.finishes()
	done, _, _ = w.succeeded()
	require.Equal(t, "2", done.GetAnnotations()[migrate.RoundAnnotation], "the first had succeeded already")
}

// finishes requires that a migration comes to its end, which etcd proves. The migrator
// begins when the garbage collector has heard of the revision at which it was asked, from
// an event or from one of the bookmarks that come once a minute: hence the writes.
func (w *two) finishes() {
	w.t.Helper()
	end := w.write(w.first, "busy")
	out, _ := w.migrate(0, "first,second")
	end()
	require.Contains(w.t, out, "nothing is left")
	w.atrest(0, w.args("audit", "--decrypt", "--strict")...)
}

// succeedsInVain has a migration succeed that is for what another one was for, while the
// second apiserver writes, and returns how many objects are stale then.
func (w *two) succeedsInVain(earlier *unstructured.Unstructured) (stale int) {
	w.t.Helper()
	api, err := migrate.NewCluster(w.first.Config, clock.RealClock{})
	require.NoError(w.t, err)
	d, err := api.Delegate(w.t.Context())
	require.NoError(w.t, err)
	again := migrate.Wanted{Resource: secrets, KeyID: earlier.GetAnnotations()[migrate.KeyIDAnnotation], Round: 1, TakeUp: time.Minute}
	end := w.write(w.second, "stale")
	for { // one that saw no write meanwhile was just too quick
		require.NoError(w.t, w.first.Dynamic.Resource(migrations).Delete(w.t.Context(), migrationName, metav1.DeleteOptions{}))
		require.NoError(w.t, d.Migrate(w.t.Context(), again))
		_, from, to := w.succeeded()
		if meanwhile := w.plaintext(from, to); meanwhile > 0 {
			w.t.Logf("it succeeded, and left %d objects in plaintext that were written meanwhile", meanwhile)
			end()
			return w.plaintext(0, 0)
		}
	}
}

// catchUp has the second apiserver take the configuration into use that the first has.
func (w *two) catchUp() { w.t.Helper(); w.use(w.current) }

// fallBack has it take the former one.
func (w *two) fallBack() { w.t.Helper(); w.use(w.former) }

func (w *two) use(entry string) {
	w.t.Helper()
	w.its.Write(entry)
	content, err := os.ReadFile(w.its.Path)
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		_, status := w.second.Get(healthz.Path)
		return strings.Contains(status, hashed.Name(content))
	}, time.Minute, 50*time.Millisecond)
}
