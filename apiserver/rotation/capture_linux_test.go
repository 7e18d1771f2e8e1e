package rotation

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/terminal"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
)

var capture = flag.String("capture", "", "folder to draw the pictures of the README into: go test ./apiserver/rotation -run TestCapture -capture $PWD/docs")

// width is that of the terminal, in columns.
const width = 100

// TestCapture draws status and rotate as they are on a terminal, of a run on three
// apiservers. Nothing is left out, and nothing changed but the folder of the plugins' sockets.
func TestCapture(t *testing.T) {
	if *capture == "" {
		t.Skip("it draws the pictures of the README: name their folder with -capture")
	}
	k := newKeys(t)
	c := startCluster(t, "kms", k, harness.HurriedServer)
	startLoad(t, c)
	traffic.Until(t, "all is well", func() bool { code, _ := c.status(t); return code == 0 })

	status := "status --apiservers cp-1,cp-2,cp-3 --separate-configs"
	at := c.capture(t)
	c.stopPlugin(c.nodes[1], "kms")
	traffic.Until(t, "cp-2 finds its plugin not well", func() bool { code, _ := c.status(t); return code == 1 })
	at.run(status, nil)
	c.startPlugin(t, c.nodes[1], "kms", k)
	traffic.Until(t, "all is well", func() bool { code, _ := c.status(t); return code == 0 })
	at.run(status, nil)
	at.draw("status.svg", "atrest status on a terminal: the plugin of one apiserver is away, and is back")

	at = c.capture(t)
	at.run("rotate one-plugin --provider kms --from current --apiservers cp-1,cp-2,cp-3 --config {apiserver}.yaml --state rotation --hold 5s",
		func(said string) bool {
			if !strings.Contains(said, "not rotated") {
				return false
			}
			k.rotate(t)
			return true
		})
	at.draw("rotate.svg", "atrest rotate on a terminal: from one version of a key to the next")
}

// captured is a terminal in which atrest runs as an operator has it.
type captured struct {
	t      *testing.T
	c      *cluster
	screen *terminal.Screen
	env    []string
}

func (c *cluster) capture(t *testing.T) *captured {
	env := append(os.Environ(), "KUBECONFIG="+c.kubeconfig(t), "ETCDCTL_ENDPOINTS="+c.etcds[0].options.Endpoint(), "TERM=xterm", "NO_COLOR=")
	return &captured{t, c, terminal.NewScreen(width), env}
}

// run is a command line in the folder of the configurations, whose words have no spaces.
// What it said so far is given to meanwhile, until that returns true.
func (at *captured) run(line string, meanwhile func(said string) bool) {
	t := at.t
	t.Helper()
	ours, its := pseudoTerminal(t)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), at.c.program, strings.Fields(line)...)
	command.Dir, command.Env = at.c.configs, at.env
	command.Stdin, command.Stdout, command.Stderr = its, its, its
	require.NoError(t, command.Start())
	require.NoError(t, its.Close())
	var said bytes.Buffer
	for page := make([]byte, 4096); ; {
		n, err := ours.Read(page)
		said.Write(page[:n])
		if meanwhile != nil && meanwhile(said.String()) {
			meanwhile = nil
		}
		if err != nil { // nobody has the other end any more
			break
		}
	}
	_ = command.Wait() // what it ends with is what it said
	text := fmt.Sprintf("\x1b[1m$ atrest %s\x1b[0m\n%s\n", line, strings.ReplaceAll(said.String(), at.c.sockets, "/run"))
	t.Logf("%s", text)
	_, err := at.screen.Write([]byte(text))
	require.NoError(t, err)
}

func (at *captured) draw(file, title string) {
	at.t.Helper()
	require.NoError(at.t, os.WriteFile(filepath.Join(*capture, file), at.screen.SVG(title), 0o644))
}

// pseudoTerminal is both ends of one.
func pseudoTerminal(t *testing.T) (ours, its *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ours.Close() })
	fd := int(ours.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	its, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: width}))
	return ours, its
}
