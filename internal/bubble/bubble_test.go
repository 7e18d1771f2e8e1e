package bubble_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
)

func TestManyDrawAtOnce(t *testing.T) {
	bubble.Test(t, func(*testing.T) {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 500 {
					_, _ = rand.Read(make([]byte, 12))
				}
			})
		}
		all.Wait()
	})
}

func TestManyDrawAtOnceByFIPS(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), program, "-test.run", "^TestManyDrawAtOnce$")
	command.Env = append(os.Environ(), "GODEBUG=fips140=only")
	said, err := command.CombinedOutput()
	require.NoError(t, err, string(said))
}
