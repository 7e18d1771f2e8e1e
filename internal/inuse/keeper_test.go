package inuse

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
)

var secrets, at = schema.GroupResource{Resource: "secrets"}, value.DefaultContext("/registry/secrets/a/b")

// content writes secrets under a key of a name.
func content(key string) string { return contentOf("aesgcm", key) }

func contentOf(kind, key string) string {
	return fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"+
		"resources: [{resources: [secrets], providers: [{%s: {keys: [{name: %s, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}]}]\n", kind, key)
}

// kept is a keeper, its file and its log.
type kept struct {
	*Keeper
	t    *testing.T
	path string

	mu     sync.Mutex
	log    bytes.Buffer
	before []*providers.Transformers // that the latest were built beside
}

func (k *kept) Write(line []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Write(line)
}

func (k *kept) logged() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.String()
}

func (k *kept) put(content string) {
	next := k.path + ".next"
	require.NoError(k.t, os.WriteFile(next, []byte(content), 0o600))
	require.NoError(k.t, os.Rename(next, k.path))
}

func (k *kept) until(holds func() bool) {
	k.t.Helper()
	require.Eventually(k.t, holds, 30*time.Second, time.Millisecond)
}

// uses reports whether a content is in use.
func (k *kept) uses(content string) bool {
	return k.Now().Configuration().Hash() == hashed.Name([]byte(content))
}

func keep(t *testing.T, first string) *kept {
	k := &kept{t: t, path: filepath.Join(t.TempDir(), "encryption.yaml")}
	k.put(first)
	build := func(content []byte, before ...*providers.Transformers) (*providers.Transformers, error) {
		k.mu.Lock()
		k.before = before
		k.mu.Unlock()
		c, err := config.Parse(content, config.Options{File: k.path, Reload: true})
		if err != nil {
			return nil, err
		}
		return providers.Build(c, providers.Options{}, before...)
	}
	built, err := build([]byte(first))
	require.NoError(t, err)
	built.Commit(func() {})
	k.Keeper = Keep(built, Options{
		Path: k.path, Build: build, APIServerID: t.Name(), Clock: clock.RealClock{},
		Logger: klog.Logger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(k)))),
	})
	t.Cleanup(k.Close)
	return k
}

// follow follows until stop is called, which waits for the end.
func (k *kept) follow() (stop func()) {
	ctx, end := context.WithCancel(k.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Follow(ctx) }()
	return sync.OnceFunc(func() {
		end()
		require.NoError(k.t, <-ended)
	})
}

func TestAContentThatComesIsUsedByAllResources(t *testing.T) {
	k := keep(t, content("one"))
	require.Nil(t, k.Status(), "nobody follows it")
	defer k.follow()()
	handle := k.Resources().TransformerForResource(secrets)
	k.put(content("two"))
	k.until(func() bool { return k.uses(content("two")) })
	<-k.Changed()
	out, err := handle.TransformToStorage(t.Context(), []byte("v"), at)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(out), "k8s:enc:aesgcm:v1:two:"))
	k.until(func() bool { return strings.Contains(k.logged(), "Encryption changed") })
	require.Equal(t, healthz.Loaded, k.Status().Outcome)
}

func TestAContentThatCannotBeUsedLeavesTheOneInUse(t *testing.T) {
	k := keep(t, content("one"))
	defer k.follow()()
	k.put("kind: [")
	k.until(func() bool { s := k.Status(); return s != nil && s.Outcome == healthz.Failed })
	s := k.Status()
	require.Equal(t, hashed.Name([]byte("kind: [")), s.FailedHash)
	require.NotEmpty(t, s.Error)
	require.False(t, s.Retrying)
	require.True(t, k.uses(content("one")))
	k.put(content("one"))
	k.until(func() bool { return k.Status().Outcome == healthz.Loaded })
	require.Empty(t, k.Status().Error)
}

func TestWhatIsSeldomMeantIsWarnedOfWithEachContent(t *testing.T) {
	k := keep(t, content("one"))
	require.NotContains(t, k.logged(), "Warning about")
	defer k.follow()()
	k.put(contentOf("aescbc", "old"))
	k.until(func() bool { return strings.Contains(k.logged(), "Warning about") })
}

func TestTheFileIsFollowedByOneAtATime(t *testing.T) {
	k := keep(t, content("one"))
	stop := k.follow()
	k.until(func() bool { return k.Status() != nil })
	require.ErrorContains(t, k.Follow(t.Context()), "is followed already")
	stop()
	require.Nil(t, k.Status())

	k.put(content("two"))
	defer k.follow()()
	k.until(func() bool { return k.uses(content("two")) })
}

func TestCloseEndsAndAwaitsWhatRuns(t *testing.T) {
	k := keep(t, content("one"))
	handle := k.Resources().TransformerForResource(secrets)
	out, err := handle.TransformToStorage(t.Context(), []byte("v"), at)
	require.NoError(t, err)
	began, ended := make(chan struct{}), false
	k.Go(context.Background(), func(ctx context.Context) {
		close(began)
		<-ctx.Done()
		ended = true
	})
	<-began
	waited := make(chan struct{})
	go func() { k.Wait(context.Background()); close(waited) }()
	k.follow()
	require.False(t, k.Ended())
	k.Close()
	require.True(t, ended)
	<-waited
	require.True(t, k.Ended())
	_, _, err = handle.TransformFromStorage(t.Context(), out, at)
	require.ErrorIs(t, err, reload.ErrClosed)

	k.Go(context.Background(), func(context.Context) { t.Error("a keeper that is closed runs nothing") })
	k.Wait(context.Background())
	require.ErrorIs(t, k.Follow(t.Context()), reload.ErrClosed)
	k.Close()
}

func TestWhatRunsEndsWithItsOwnContext(t *testing.T) {
	k := keep(t, content("one"))
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	k.Go(ctx, func(ctx context.Context) { <-ctx.Done(); close(done) })
	end()
	<-done
	k.Wait(ctx)
	require.False(t, k.Ended())
}
