package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
)

// No plugin of KMS v1 tells which key it has, so two that work may have one each.
func TestWhatIsWrittenWithKMSv1IsNotKnownToBeReadByOthers(t *testing.T) {
	file, err := config.Parse([]byte(strings.TrimSpace(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v1, name: old, endpoint: "unix:///run/old.sock"}
- resources: [configmaps]
  providers:
  - identity: {}
  - kms: {apiVersion: v1, name: read, endpoint: "unix:///run/read.sock"}
`)), config.Options{KMSv1: true})
	require.NoError(t, err)
	f := &checked{}
	f.untold(file, false)
	require.Equal(t, []string{`whether the others read what is written with KMS v1 "old" of secrets: no plugin of KMS v1 tells which key it has`}, f.Unknown)
}
