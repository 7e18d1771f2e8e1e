package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine is what figures were taken on.
type machine struct {
	cpu        string
	processors int
	kernel     string
	load       float64       // of the last minute, before measuring
	sync       time.Duration // median of a write to the disk that etcd's writes wait for
	modules    []string
}

// inspect describes the machine. It tries the disk in folder.
func inspect(folder string) (machine, error) {
	m := machine{cpu: cpuModel(), processors: runtime.NumCPU(), kernel: firstLine("/proc/sys/kernel/osrelease")}
	_, _ = fmt.Sscan(firstLine("/proc/loadavg"), &m.load) // 0 where the system does not tell
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "k8s.io/kubernetes", "k8s.io/apiserver", "go.etcd.io/etcd/server/v3":
				m.modules = append(m.modules, d.Path+" "+d.Version)
			}
		}
	}
	var err error
	m.sync, err = timeSync(filepath.Join(folder, "sync"))
	return m, err
}

// busy reports whether others use the machine as well.
func (m machine) busy() bool { return m.load > float64(m.processors)/2 }

func (m machine) write(w io.Writer) {
	fmt.Fprintf(w, "cpu: %s\nprocessors: %d\nsystem: %s/%s %s\ngo: %s\nload before: %.2f\na write of 2 KiB with fsync: %s\n",
		m.cpu, m.processors, runtime.GOOS, runtime.GOARCH, m.kernel, runtime.Version(), m.load, m.sync.Round(time.Microsecond))
	for _, d := range m.modules {
		fmt.Fprintln(w, d)
	}
}

// timeSync is how long a small write and its fsync take: the floor of every create.
func timeSync(path string) (time.Duration, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("try the disk: %w", err)
	}
	defer f.Close()
	var took []float64
	block := make([]byte, 2*kib)
	for range 100 {
		began := time.Now()
		if _, err = f.Write(block); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return 0, fmt.Errorf("try the disk: %w", err)
		}
		took = append(took, float64(time.Since(began)))
	}
	return time.Duration(quantile(took, 0.5)), os.Remove(path)
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
