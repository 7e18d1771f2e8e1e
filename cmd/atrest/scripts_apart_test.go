package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// apart in the environment names a folder of scripts for TestScriptsOfAFolder.
const apart = "ATREST_TEST_SCRIPTS"

func TestScriptsOfAFolder(t *testing.T) {
	folder := os.Getenv(apart)
	if folder == "" {
		t.Skip("this is for TestAScriptThatFailsEndsNoOther")
	}
	testscript.Run(t, scriptsIn(folder))
}

// What a script requires and does not get is its own failure.
func TestAScriptThatFailsEndsNoOther(t *testing.T) {
	folder := t.TempDir()
	for name, script := range map[string]string{
		"fails": "exec atrest version\nevents finished\n", // which are none
		"holds": "plugin KMS start\nexec sleep 2\nexec atrest version\nstdout .\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".txtar"), []byte(script), 0o600))
	}
	program, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(program, "-test.v", "-test.parallel=2", "-test.run", "^TestScriptsOfAFolder$")
	command.Env = append(os.Environ(), apart+"="+folder)
	out, err := command.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--- FAIL: TestScriptsOfAFolder/fails")
	require.Contains(t, string(out), "--- PASS: TestScriptsOfAFolder/holds")
	require.NotContains(t, string(out), "panic")
}
