package config_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
)

const file = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets, '*.apps']
    providers:
      - kms:
          apiVersion: v2
          name: vault
          endpoint: unix:///run/kms/vault.sock
      - aescbc:
          keys:
            - name: key1
              secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=
`

func ExampleParse() {
	c, err := config.Parse([]byte(file), config.Options{File: "/etc/kubernetes/encryption.yaml"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, provider := range c.For(schema.GroupResource{Group: "apps", Resource: "deployments"}) {
		switch provider.Kind() {
		case config.KMSv2:
			fmt.Println(provider.Kind(), provider.KMS().Name, provider.KMS().Address, provider.KMS().Timeout)
		default:
			fmt.Println(provider.Kind(), provider.Keys())
		}
	}
	fmt.Println("pods:", c.For(schema.GroupResource{Resource: "pods"}))
	// Output:
	// kms v2 vault /run/kms/vault.sock 3s
	// aescbc [key "key1" [redacted]]
	// pods: []
}

func ExampleParse_refused() {
	_, err := config.Parse([]byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [pods/status]
    providers: [{identity: {}}]
`), config.Options{File: "/etc/kubernetes/encryption.yaml"})
	fmt.Println(err)
	// Output:
	// encryption provider configuration file "/etc/kubernetes/encryption.yaml": resources[0].resources[0]: Invalid value: "pods/status": no resource has this name, nothing would be encrypted: leave out what follows '/', a subresource is stored with its resource
}

func ExampleConfiguration_Unserved() {
	c, err := config.Parse([]byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secret]
    providers: [{identity: {}}]
`), config.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	served := map[schema.GroupResource]bool{{Resource: "secrets"}: true}
	for _, warning := range c.Unserved(func(r schema.GroupResource) bool { return served[r] }) {
		fmt.Println(warning)
	}
	// Output:
	// resources[0].resources[0]: this server has no resource "secret", so nothing is encrypted by its name: is "secrets" meant?
}
