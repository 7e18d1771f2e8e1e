package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// machine is what figures were taken on.
type machine struct {
	cpu        string
	processors int
	threads    int // GOMAXPROCS
	kernel     string
	load       float64 // of the last minute, before measuring
	modules    []string
}

func inspect() machine {
	m := machine{
		cpu: cpuModel(), processors: runtime.NumCPU(), threads: runtime.GOMAXPROCS(0),
		kernel: firstLine("/proc/sys/kernel/osrelease"),
	}
	_, _ = fmt.Sscan(firstLine("/proc/loadavg"), &m.load) // 0 where the system does not tell
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if compared[d.Path] {
				m.modules = append(m.modules, d.Path+" "+d.Version)
			}
		}
	}
	return m
}

// compared are the modules whose version matters to the figures.
var compared = map[string]bool{
	"k8s.io/apiserver": true, "k8s.io/kms": true, "k8s.io/component-base": true,
	"github.com/tink-crypto/tink-go/v2": true, "golang.org/x/crypto": true,
	"github.com/prometheus/client_golang": true, "google.golang.org/grpc": true,
}

// busy reports whether others use the machine as well.
func (m machine) busy() bool { return m.load > float64(m.processors)/2 }

func (m machine) write(w io.Writer) {
	fmt.Fprintf(w, "cpu: %s\nprocessors: %d, GOMAXPROCS %d\nsystem: %s/%s %s\ngo: %s\nload before: %.2f\n",
		m.cpu, m.processors, m.threads, runtime.GOOS, runtime.GOARCH, m.kernel, runtime.Version(), m.load)
	for _, d := range m.modules {
		fmt.Fprintln(w, d)
	}
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
