package v1alpha1_test

import (
	"fmt"
	"log"

	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
)

func ExampleEncryptionAtRest_Validate() {
	var o v1alpha1.EncryptionAtRest
	err := yaml.UnmarshalStrict([]byte(`
apiVersion: encryption.kube-atrest.io/v1alpha1
kind: EncryptionAtRest
metadata: {name: cluster}
spec:
  encryption:
    type: KMS
    kms:
      type: Vault
      vault:
        vaultAddress: http://vault.example.com:8200
        vaultKeyPath: transit/keys/kube
        authentication: {type: AppRole, appRole: {secret: {name: vault-approle}}}
`), &o)
	if err != nil {
		log.Fatal(err)
	}
	o.Default()
	fmt.Println(o.Spec.Resources, o.Spec.Encryption.KMS.Timeout)
	fmt.Println(o.Validate().ToAggregate())
	o.Spec.Encryption.KMS.Vault.VaultAddress = "https://vault.example.com:8200"
	fmt.Println(len(o.Validate()))
	// Output:
	// [secrets configmaps] 10s
	// spec.encryption.kms.vault.vaultAddress: Invalid value: must use the 'https' scheme
	// 0
}
