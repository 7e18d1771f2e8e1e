package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// twoKeys is a key file with a key of each of two days.
func twoKeys(t *testing.T) (path string, infos []keyfile.KeyInfo) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kek.json")
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	file := keyfile.At(path, keyfile.WithClock(clock))
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	clock.Step(24 * time.Hour)
	_, err = file.Rotate(t.Context())
	require.NoError(t, err)
	infos, err = file.List()
	require.NoError(t, err)
	return path, infos
}

func requireNoKeys(t *testing.T, path, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var file struct{ Keys []struct{ KEK string } }
	require.NoError(t, json.Unmarshal(data, &file))
	require.Len(t, file.Keys, 2)
	for _, key := range file.Keys {
		require.NotContains(t, text, key.KEK)
	}
}

func TestListAsATable(t *testing.T) {
	path, infos := twoKeys(t)
	got := runCommand(t, "keyfile", "list", "--key-file", path)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Empty(t, got.stderr)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, []string{"ID", "KEY_ID", "FORMERLY", "CREATED", "USE"}, strings.Fields(lines[0]))
	require.Equal(t, []string{infos[0].ID, hashed.Short(hashed.ID(infos[0].KeyID)), "-", "2026-01-31T12:00:00Z", "reads"}, strings.Fields(lines[1]))
	require.Equal(t, []string{infos[1].ID, hashed.Short(hashed.ID(infos[1].KeyID)), "-", "2026-02-01T12:00:00Z", "reads", "and", "writes"}, strings.Fields(lines[2]))
	requireNoKeys(t, path, got.stdout)
}

func TestListAsJSON(t *testing.T) {
	path, infos := twoKeys(t)
	got := runCommand(t, "keyfile", "list", "--key-file", path, "-o", "json")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.JSONEq(t, fmt.Sprintf(`{"keys": [
		{"id": %q, "keyID": %q, "hash": %q, "created": "2026-01-31T12:00:00Z", "writes": false},
		{"id": %q, "keyID": %q, "hash": %q, "created": "2026-02-01T12:00:00Z", "writes": true}
	]}`, infos[0].ID, infos[0].KeyID, hashed.ID(infos[0].KeyID), infos[1].ID, infos[1].KeyID, hashed.ID(infos[1].KeyID)), got.stdout)
	requireNoKeys(t, path, got.stdout)
}

func TestListKnowsTwoOutputs(t *testing.T) {
	path, _ := newKeyFile(t)
	got := runCommand(t, "keyfile", "list", "--key-file", path, "-o", "yaml")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, `flag --output is "yaml": table or json`)
}

// What was wrapped before the kit made key_ids is stored under others, which other tools show.
func TestListTellsWhatAVersionWasCalled(t *testing.T) {
	data, err := os.ReadFile("../../keyfile/testdata/v1.json")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kek.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	got := runCommand(t, "keyfile", "list", "--key-file", path)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, hashed.Short(hashed.ID("2.303132333435363738393a3b3c3d3e3f")))
}
