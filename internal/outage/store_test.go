package outage

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/tools/cache"
)

// newer is a storage that deletes what cannot be read as that of kube-apiserver
// from 1.37 on does: it reads first, and any error will do.
type newer struct {
	storage.Interface
	transformer value.Transformer
	deleted     bool
}

func (s *newer) Delete(
	ctx context.Context, _ string, _ runtime.Object, _ *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	if _, _, err := s.transformer.TransformFromStorage(ctx, nil, value.DefaultContext("x")); err == nil {
		return errors.New("the object can be read")
	}
	if err := validate(ctx, nil); err != nil {
		return err
	}
	s.deleted = true
	return nil
}

func (s *newer) Get(ctx context.Context, key string, _ storage.GetOptions, _ runtime.Object) error {
	_, _, err := s.transformer.TransformFromStorage(ctx, nil, value.DefaultContext(key))
	return err
}

func (s *newer) GetList(ctx context.Context, key string, _ storage.ListOptions, _ runtime.Object) error {
	return s.Get(ctx, key, storage.GetOptions{}, nil)
}

// around wraps inner as [RESTOptions] does.
func around(t *testing.T, inner *newer, transformer value.Transformer) storage.Interface {
	decorator := decorate(func(
		c *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error), _, _ func() runtime.Object,
		_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		inner.transformer = c.Transformer
		return inner, func() {}, nil
	})
	config := (&storagebackend.Config{Transformer: transformer}).ForResource(pods)
	s, _, err := decorator(config, "", nil, nil, nil, nil, nil, nil)
	require.NoError(t, err)
	return s
}

func TestAStorageThatForgetsWhyItCannotReadDoesNotDeleteInAnOutage(t *testing.T) {
	var unread storage.DeleteOptions
	only := reflect.ValueOf(&unread).Elem() // it has another name from 1.37 on
	require.Equal(t, 1, only.NumField())
	only.Field(0).SetBool(true)
	errRefused := errors.New("refused by admission")
	for name, c := range map[string]struct {
		fails, admission, want error
		deletes                bool
	}{
		"damaged":               {fails: errDamaged, deletes: true},
		"damaged, not admitted": {fails: errDamaged, admission: errRefused, want: errRefused},
		"an outage":             {fails: errOutage, want: errOutage},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &newer{}
			s := around(t, inner, &rig{fails: c.fails})
			admit := func(context.Context, runtime.Object) error { return c.admission }
			err := s.Delete(t.Context(), "x", &example.Pod{}, nil, admit, nil, unread)
			require.Equal(t, c.deletes, inner.deleted)
			if c.fails == errOutage {
				requireUnavailable(t, err, "delete")
			} else {
				require.Equal(t, c.want, err)
			}
		})
	}
}

func TestWhatSucceedsCostsNothing(t *testing.T) {
	bare := &newer{transformer: &rig{}}
	wrapped := around(t, &newer{}, &rig{})
	gets := func(s storage.Interface) float64 {
		return testing.AllocsPerRun(100, func() { _ = s.Get(t.Context(), "x", storage.GetOptions{}, nil) })
	}
	lists := func(s storage.Interface) float64 {
		return testing.AllocsPerRun(100, func() { _ = s.GetList(t.Context(), "x", storage.ListOptions{}, nil) })
	}
	require.Equal(t, gets(bare), gets(wrapped))
	require.LessOrEqual(t, lists(wrapped), lists(bare)+2)
}

func TestStorageWithoutATransformerIsLeftAlone(t *testing.T) {
	inner := &newer{}
	require.Same(t, inner, around(t, inner, nil))
	require.Nil(t, inner.transformer)
}

func TestOptionsThatMakeNoStorageAreLeftAlone(t *testing.T) {
	options, err := RESTOptions(generic.RESTOptions{ResourcePrefix: "pods"}).GetRESTOptions(pods, nil)
	require.NoError(t, err)
	require.Equal(t, generic.RESTOptions{ResourcePrefix: "pods"}, options)
}

func TestTheConfigOfOthersIsNotChanged(t *testing.T) {
	config := (&storagebackend.Config{Transformer: &rig{}}).ForResource(pods)
	before := *config
	_, destroy, err := decorate(func(
		c *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error), _, _ func() runtime.Object,
		_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		return nil, func() {}, errors.New("no etcd")
	})(config, "", nil, nil, nil, nil, nil, nil)
	require.EqualError(t, err, "no etcd")
	require.NotNil(t, destroy)
	require.Equal(t, before, *config)
}
