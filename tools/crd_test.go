// Package tools pins the tools of CI, and holds what they generate to what is committed.
package tools

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What go generate makes is committed with the types that it is made of.
func TestWhatIsGeneratedIsCommitted(t *testing.T) {
	out := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+absolute(t, "go.mod"), "controller-gen",
		"object", "crd", "paths=.", "output:object:dir="+out, "output:crd:dir="+out)
	command.Dir = "../operate/api/v1alpha1"
	command.Env = append(os.Environ(), "GOWORK=off")
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	made, err := os.ReadDir(out)
	if err != nil || len(made) != 3 {
		t.Fatalf("three files are generated, not %v: %v", made, err)
	}
	for _, file := range made {
		folder := "../deploy/crd"
		if filepath.Ext(file.Name()) == ".go" {
			folder = command.Dir
		}
		if !bytes.Equal(content(t, out, file.Name()), content(t, folder, file.Name())) {
			t.Errorf("%s in %s is not what the types say: go generate ./operate/api/...", file.Name(), folder)
		}
	}
	committed, err := filepath.Glob("../deploy/crd/*.yaml")
	if err != nil || len(committed) != 2 {
		t.Fatalf("there are two definitions, not %v: %v", committed, err)
	}
}

func content(t *testing.T, folder, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
