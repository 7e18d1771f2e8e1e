package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

const versionHelp = `Say which atrest this is: its version and the commit it was made from, the version
of Go, and that of the Kubernetes libraries. What an apiserver stores and the file it
reads are those of kube-apiserver of that version.

atrest --version is the same.

Exit codes:
  0  said
  2  wrong flags`

// version is which program this is.
type version struct {
	Version string `json:"version"`
	// Commit is what it was made from, and Modified whether with changes; empty if
	// whoever made it left that out.
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"commitTime,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Kubernetes is the version of the libraries, by module.
	Kubernetes map[string]string `json:"kubernetes"`
}

// libraries are the modules of Kubernetes that decide what is stored and how it is
// asked for.
var libraries = []string{"k8s.io/apiserver", "k8s.io/client-go"}

const unknown = "unknown"

// thisVersion is what a program tells of itself, or nil.
func thisVersion(of *debug.BuildInfo) version {
	v := version{Version: unknown, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kubernetes: map[string]string{}}
	for _, name := range libraries {
		v.Kubernetes[name] = unknown
	}
	if of == nil {
		return v
	}
	if of.Main.Version != "" {
		v.Version = of.Main.Version
	}
	for _, m := range of.Deps {
		if m.Replace != nil {
			m = &debug.Module{Path: m.Path, Version: m.Replace.Version}
		}
		if _, asked := v.Kubernetes[m.Path]; asked && m.Version != "" {
			v.Kubernetes[m.Path] = m.Version
		}
	}
	for _, s := range of.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// print writes it in lines.
func (v version) print(w io.Writer) {
	fmt.Fprintf(w, "atrest %s\n", v.Version)
	if v.Commit != "" {
		changed := ""
		if v.Modified {
			changed = ", with changes"
		}
		fmt.Fprintf(w, "commit %s of %s%s\n", v.Commit, v.Time, changed)
	}
	fmt.Fprintf(w, "%s %s\n", v.Go, v.Platform)
	for _, name := range libraries {
		fmt.Fprintf(w, "%s %s\n", name, v.Kubernetes[name])
	}
}

func newVersion(s streams) *cobra.Command {
	var to output
	command := &cobra.Command{
		Use:     "version",
		Short:   "Say which atrest this is",
		Long:    versionHelp,
		Example: "  atrest version -o json",
		Args:    arguments(0, ""),
		RunE: func(*cobra.Command, []string) error {
			if err := to.check(); err != nil {
				return err
			}
			info, _ := debug.ReadBuildInfo()
			v := thisVersion(info)
			return to.write(s.out, v, func(w io.Writer) error { v.print(w); return nil })
		},
	}
	to.addFlag(command.Flags())
	return command
}
