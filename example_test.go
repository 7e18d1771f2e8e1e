package atrest_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest"
)

// newConfig is what an apiserver of one's own does with its command line.
func newConfig(args []string) (*server.Config, error) {
	config := server.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	flags := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	etcd := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	etcd.SkipHealthEndpoints = true // there is no etcd here
	etcd.AddFlags(flags)

	encryption := atrest.NewOptions()
	encryption.AddFlags(flags) // after etcd.AddFlags, whose two encryption flags it takes over
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if err := encryption.ApplyTo(config); err != nil { // before etcd.ApplyTo, which makes the storage
		return nil, err
	}
	if err := etcd.ApplyTo(config); err != nil {
		return nil, err
	}
	return config, nil
}

func Example() {
	file, remove := exampleFile()
	defer remove()

	config, err := newConfig([]string{"--encryption-provider-config=" + file})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(encrypted(config.RESTOptionsGetter))
	// Output:
	// map[configmaps:false secrets:true]
}

// serve is for a server whose config is made by somebody else.
func serve(ctx context.Context, o *atrest.Options, config *server.Config) error {
	encryption, err := o.Start(ctx, config.APIServerID)
	if err != nil {
		return err
	}
	defer encryption.Close() // when the last request has been answered
	if err := encryption.Install(config); err != nil {
		return err
	}
	return run(ctx, config)
}

func ExampleOptions_Start() {
	file, remove := exampleFile()
	defer remove()

	o := atrest.NewOptions()
	o.ConfigFile = file
	config := server.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	config.RESTOptionsGetter = plaintext{}
	if err := serve(context.Background(), o, config); err != nil {
		log.Fatal(err)
	}
	// Output:
	// map[configmaps:false secrets:true]
}

// run stands for the server's own way of serving.
func run(_ context.Context, config *server.Config) error {
	fmt.Println(encrypted(config.RESTOptionsGetter))
	return nil
}

// plaintext stands for the storage options that a server has made.
type plaintext struct{}

func (plaintext) GetRESTOptions(r schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{StorageConfig: storagebackend.NewDefaultConfig("/registry", nil).ForResource(r)}, nil
}

// exampleFile writes an EncryptionConfiguration. Real keys are not kept in a
// file beside etcd: that is what KMS plugins are for.
func exampleFile() (path string, remove func()) {
	folder, err := os.MkdirTemp("", "atrest")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(folder, "encryption.yaml")
	content := `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}
      - identity: {}
`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		log.Fatal(err)
	}
	return path, func() { _ = os.RemoveAll(folder) }
}

// encrypted tells of two resources whether a value is stored encrypted.
func encrypted(storage generic.RESTOptionsGetter) map[string]bool {
	found := map[string]bool{}
	for _, resource := range []string{"secrets", "configmaps"} {
		o, err := storage.GetRESTOptions(schema.GroupResource{Resource: resource}, nil)
		if err != nil {
			log.Fatal(err)
		}
		stored, err := o.StorageConfig.Transformer.TransformToStorage(context.Background(), []byte("{}"), value.DefaultContext("/registry/x"))
		if err != nil {
			log.Fatal(err)
		}
		found[resource] = bytes.HasPrefix(stored, []byte("k8s:enc:aesgcm:v1:key1:"))
	}
	return found
}
