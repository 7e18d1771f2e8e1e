package bundle_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/kube-atrest/atrest/operate/bundle"
)

const configuration = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: 7_secrets, endpoint: "unix:///run/kmsplugin/kms-7.sock"}
  - identity: {}
`

const settings = `
apiVersion: encryption.kube-atrest.io/v1alpha1
kind: PluginSettings
vault:
  address: https://vault.example.com:8200
  keyPath: transit/keys/kube
  auth: {appRole: {secret: vault-approle}}
`

// of is a bundle with one plugin.
func of(revision uint64, settings string) *bundle.Bundle {
	b, err := bundle.New(bundle.Draft{
		Revision:         revision,
		EncryptionConfig: []byte(configuration),
		Plugins: []bundle.DraftPlugin{{
			KeyID:    7,
			Settings: []byte(settings),
			Parts: map[bundle.Part][]byte{
				{Source: bundle.Secret, Name: "vault-approle", Key: "role-id"}:   []byte("the role-id"),
				{Source: bundle.Secret, Name: "vault-approle", Key: "secret-id"}: []byte("the secret-id"),
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return b
}

func ExampleNew() {
	b := of(1, settings)
	for _, p := range b.Plugins() {
		fmt.Println(p.KeyID(), p.KeyID().Socket(), p.Settings().KEK())
		for _, part := range p.Parts() {
			fmt.Println(part.FileName(p.KeyID()))
		}
	}
	again, err := bundle.Decode(b.Encode()) // as the data of a Secret
	fmt.Println(err, again.Hash() == b.Hash())
	// Output:
	// 7 kms-7.sock https://vault.example.com:8200 transit/keys/kube
	// kms-plugin-secret-vault-approle_role-id-7
	// kms-plugin-secret-vault-approle_secret-id-7
	// <nil> true
}

func ExamplePlugin_Arguments() {
	p := of(1, settings).Plugin(7)
	fmt.Println(strings.Join(p.Arguments(bundle.Place{Socket: "/run/kmsplugin/kms-7.sock", Files: "/run/atrest/7"}), "\n"))
	// Output:
	// vault
	// serve
	// --listen=unix:///run/kmsplugin/kms-7.sock
	// --vault-address=https://vault.example.com:8200
	// --vault-key-path=transit/keys/kube
	// --approle-role-id-file=/run/atrest/7/kms-plugin-secret-vault-approle_role-id-7
	// --approle-secret-id-file=/run/atrest/7/kms-plugin-secret-vault-approle_secret-id-7
}

// An address may lead to the same KEK by another name. What both plugins show of it decides;
// preflight.Collect sees it of two that run.
func ExampleDiff() {
	from, to := of(1, settings), of(2, strings.Replace(settings, "vault.example.com", "vault.internal", 1))
	fmt.Println(bundle.Diff(from, to, nil).Effect())
	same := "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	seen := bundle.Evidence{Was: same, Is: same, Opened: bundle.Yes, OpenedBack: bundle.Yes}
	fmt.Println(bundle.Diff(from, to, map[bundle.KeyID]bundle.Evidence{7: seen}).Effect())
	seen.Opened = bundle.No
	fmt.Println(bundle.Diff(from, to, map[bundle.KeyID]bundle.Evidence{7: seen}).Effect())
	// Output:
	// not known
	// in place
	// another keyID
}
