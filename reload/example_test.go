package reload_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/reload"
)

// tagged is a generation that puts the file's content before each value. A
// real one encrypts.
type tagged struct{ tag []byte }

func build(_ context.Context, content []byte) (reload.Generation, error) {
	return tagged{bytes.TrimSpace(content)}, nil
}

func (g tagged) TransformerForResource(schema.GroupResource) value.Transformer { return g }
func (g tagged) Close()                                                        {}

func (g tagged) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return bytes.Join([][]byte{g.tag, data}, []byte(" ")), nil
}

func (g tagged) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	tag, out, _ := bytes.Cut(data, []byte(" "))
	return out, !bytes.Equal(tag, g.tag), nil
}

// The first generation is built before anything is served, so that a file that
// cannot be used ends the start. From then on the file is followed.
func Example() {
	dir, err := os.MkdirTemp("", "reload")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte("one\n"), 0o600); err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	content, err := reload.Read(path)
	if err != nil {
		panic(err)
	}
	first, err := build(ctx, content)
	if err != nil {
		panic(err)
	}
	set := reload.NewSet[reload.Generation](first, reload.SetOptions{})
	defer set.Close()

	loaded := make(chan reload.Status)
	controller, err := reload.NewController(reload.Config[reload.Generation]{
		Path: path, Hash: reload.Hash(content), Build: build, Set: set,
		Hooks: reload.Hooks[reload.Generation]{Loaded: func(_ reload.Generation, status reload.Status) { loaded <- status }},
	})
	if err != nil {
		panic(err)
	}
	ended := make(chan struct{})
	go func() { controller.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()

	secrets := set.TransformerForResource(schema.GroupResource{Resource: "secrets"})
	stored, _ := secrets.TransformToStorage(ctx, []byte("value"), value.DefaultContext("/registry/secrets/a"))
	fmt.Printf("%s\n", stored)

	if err := os.WriteFile(path, []byte("two\n"), 0o600); err != nil {
		panic(err)
	}
	fmt.Println((<-loaded).Hash)
	stored, _ = secrets.TransformToStorage(ctx, []byte("value"), value.DefaultContext("/registry/secrets/a"))
	fmt.Printf("%s\n", stored)

	// Output:
	// one value
	// sha256:27dd8ed44a83ff94d557f9fd0412ed5a8cbca69ea04922d88c01184a07300a5a
	// two value
}
