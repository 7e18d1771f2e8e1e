package main

import (
	"bytes"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAVersionIsThatOfTheBuild(t *testing.T) {
	v := thisVersion(&debug.BuildInfo{
		Main: debug.Module{Version: "v0.3.0"},
		Deps: []*debug.Module{{Path: "k8s.io/apiserver", Version: "v0.36.3"}, {Path: "k8s.io/client-go", Version: "v0.1.0", Replace: &debug.Module{Version: "v0.36.2"}},
			{Path: "example.com/other", Version: "v1.0.0"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-22T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}},
	})
	require.Equal(t, "v0.3.0", v.Version)
	require.Equal(t, map[string]string{"k8s.io/apiserver": "v0.36.3", "k8s.io/client-go": "v0.36.2"}, v.Kubernetes)
	var text bytes.Buffer
	v.print(&text)
	require.Contains(t, text.String(), "atrest v0.3.0\ncommit abc of 2026-11-22T00:00:00Z, with changes\ngo1.")
}

func TestWhatIsNotKnownOfABuildIsSaid(t *testing.T) {
	var text bytes.Buffer
	thisVersion(nil).print(&text)
	require.Contains(t, text.String(), "atrest unknown\n")
	require.Contains(t, text.String(), "k8s.io/apiserver unknown\n")
	require.NotContains(t, text.String(), "commit")
}
