package measure

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

var model = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// Machine describes what figures are taken on, in lines, with the versions of some modules.
func Machine(modules ...string) string {
	cpu := runtime.GOARCH
	if found := model.FindStringSubmatch(content("/proc/cpuinfo")); found != nil {
		cpu = found[1]
	}
	text := fmt.Sprintf("cpu: %s\nprocessors: %d, GOMAXPROCS %d\nsystem: %s/%s %s\ngo: %s\nload before: %.2f\n", cpu,
		runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, strings.TrimSpace(content("/proc/sys/kernel/osrelease")), runtime.Version(), load())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(modules, d.Path) {
				text += d.Path + " " + d.Version + "\n"
			}
		}
	}
	return text
}

// WarnIfBusy says so if others use the machine as well.
func WarnIfBusy(to io.Writer) {
	if now := load(); now > float64(runtime.NumCPU())/2 {
		fmt.Fprintf(to, "The machine is busy (load %.1f on %d processors): expect wide spreads.\n", now, runtime.NumCPU())
	}
}

// load is that of the last minute, 0 where the system does not tell.
func load() (l float64) {
	_, _ = fmt.Sscan(content("/proc/loadavg"), &l)
	return l
}

func content(path string) string {
	text, _ := os.ReadFile(path) // empty where there is none
	return string(text)
}
