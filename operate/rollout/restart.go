package rollout

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// RestartHook is a program that has an apiserver start anew which does not follow its
// configuration file: PROGRAM restart NAME. It may return before the apiserver is back.
// What it leaves running ends with it, so the apiserver has to be the child of another. In
// its environment are ATREST_APISERVER, the name, ATREST_HOST, the name or the host if that
// is HOST:PORT, and ATREST_SHA256, the hash of the file that is to be in effect then.
type RestartHook struct {
	Program string
	// Timeout is for how long it may take; [DefaultRestartTimeout] if it is 0.
	Timeout time.Duration
	// Err is where it says what it does.
	Err io.Writer
}

// DefaultRestartTimeout is how long the program may take that restarts an apiserver, if
// nothing else is said: most wait a minute for what is under way.
const DefaultRestartTimeout = 3 * time.Minute

func (h RestartHook) run(ctx context.Context, a rotation.Restart) error {
	const what = "restart"
	late, err := call(ctx, limit{cmp.Or(h.Timeout, DefaultRestartTimeout), "--restart-timeout"}, []string{h.Program, what, a.Instance}, func(c *exec.Cmd) {
		c.Stdout, c.Stderr = h.Err, h.Err
		c.Env = append(os.Environ(), "ATREST_APISERVER="+a.Instance, "ATREST_HOST="+Fill(Placeholder, a.Instance),
			"ATREST_SHA256="+strings.TrimPrefix(a.Hash, "sha256:"))
	})
	return ofHook(h.Program, what, a.Instance, late, err)
}

// Restart has an apiserver start anew; see [drive.World].
func (w *world) Restart(ctx context.Context, a rotation.Restart) error {
	return w.rotation.Restart.run(ctx, a)
}

// readReady tells which apiservers are not ready, if one may be restarted.
func (w *world) readReady(ctx context.Context) {
	if w.files == nil || w.rotation.Restart == nil { // no file is written
		return
	}
	for name, why := range w.rotation.Fleet.Unready(ctx) {
		seen := w.seen[name]
		seen.Unready = why
		w.seen[name] = seen
	}
}
