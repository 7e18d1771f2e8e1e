package harness

import (
	"fmt"
	"path/filepath"
	"testing"

	kmsv1 "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/testing/v1beta1"
)

// StartKMSv1 runs Kubernetes' own test plugin of KMS v1, which wraps in base64, until the
// test ends, and returns a provider of this name that asks it.
func StartKMSv1(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(SocketDir(t), "kms.sock")
	kmsv1.NewBase64Plugin(t, path)
	return fmt.Sprintf("kms: {apiVersion: v1, name: %s, endpoint: %q}", name, "unix://"+path)
}
