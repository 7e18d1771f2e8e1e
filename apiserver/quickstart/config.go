package main

import (
	"fmt"

	"github.com/kube-atrest/atrest/internal/wholefile"
)

const (
	// provider is the name under which Secrets are stored, part of every value's prefix.
	provider = "key-file"
	// A name may be used once in a file, so the same plugin has another for ConfigMaps.
	// It is one connection and one key all the same.
	configMapProvider = "key-file-configmaps"
)

// order is the order of the two providers of ConfigMaps: the first writes, both read.
type order bool

const (
	plainFirst  order = false
	cipherFirst order = true
)

const configText = `# The quickstart writes this file anew when it starts. Change it while the apiserver
# serves: it takes effect at once, and what cannot be used changes nothing.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: %[1]s, endpoint: %[2]q}
  - identity: {}
- resources: [configmaps]
  providers:
  - %[3]s
  - %[4]s
`

// writeConfig replaces the EncryptionConfiguration in one step, so that nobody reads half
// of it.
func (f folder) writeConfig(endpoint string, configMaps order) error {
	first, second := "identity: {}", fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q}", configMapProvider, endpoint)
	if configMaps == cipherFirst {
		first, second = second, first
	}
	text := fmt.Sprintf(configText, provider, endpoint, first, second)
	if err := wholefile.Write(f.config(), []byte(text)); err != nil {
		return fmt.Errorf("replace the encryption configuration: %w", err)
	}
	return nil
}
