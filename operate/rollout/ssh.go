package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/wholefile"
)

// SSHFiles are files on the machines of the apiservers, reached by the ssh of this one as
// its configuration says, without a question. The user has to be one who may write the
// file and make one beside it. [ParseSSH] makes them.
type SSHFiles struct {
	// Timeout is as in [HookedFiles].
	Timeout time.Duration

	user, host, port, path string // with the placeholder in host or path
}

// SSHScheme is what the address of such files begins with.
const SSHScheme = "ssh://"

// ParseSSH reads ssh://[USER@]HOST[:PORT]/PATH, where the placeholder may be in HOST and
// PATH.
func ParseSSH(address string) (SSHFiles, error) {
	wrong := fmt.Errorf("%q is no file that ssh reaches: write ssh://[USER@]%s[:PORT]/PATH", address, Placeholder)
	authority, path, ok := strings.Cut(strings.TrimPrefix(address, SSHScheme), "/")
	f := SSHFiles{path: "/" + path}
	f.user, f.host, ok = cutUser(authority, ok)
	if i := strings.LastIndexByte(f.host, ':'); i >= 0 && !strings.HasSuffix(f.host, "]") {
		f.host, f.port = f.host[:i], f.host[i+1:]
		if _, err := strconv.ParseUint(f.port, 10, 16); err != nil {
			return SSHFiles{}, wrong
		}
	}
	if strings.HasPrefix(f.host, "[") && strings.HasSuffix(f.host, "]") {
		f.host = f.host[1 : len(f.host)-1]
	}
	if !ok || path == "" || strings.HasSuffix(path, "/") || f.host == "" || !strings.HasPrefix(address, SSHScheme) {
		return SSHFiles{}, wrong
	}
	return f, nil
}

// cutUser parts USER@HOST. A password is no part of it.
func cutUser(authority string, ok bool) (user, host string, fine bool) {
	i := strings.LastIndexByte(authority, '@')
	if i < 0 {
		return "", authority, ok
	}
	return authority[:i], authority[i+1:], ok && i > 0 && !strings.Contains(authority[:i], ":")
}

// beside makes a file beside the one of $1 with its owner and mode, which may not be
// those of whoever writes; it goes when the shell does. What is written comes after two
// lines: its hash, so that half of it is noticed, and that of what it takes the place of.
// No content is in an argument.
const (
	beside = `set -eu
umask 077
f=$(readlink -f -- "$1") || f=$1
[ -f "$f" ] && [ -r "$f" ] || { echo "$1 is no file that can be read" >&2; exit 1; }
[ "$(stat -c %h -- "$f")" = 1 ] || { echo "$f has another name (a hard link), which would stay as it is" >&2; exit 1; }
n=$(dirname -- "$f")/.$(basename -- "$f").atrest-$$
trap 'rm -f -- "$n"' EXIT
trap 'exit 1' HUP INT TERM
cp -a -- "$f" "$n"
[ "$(stat -c %u:%g:%a -- "$f")" = "$(stat -c %u:%g:%a -- "$n")" ] || { echo "the owner and mode of $f cannot be kept: let ssh be the owner or root" >&2; exit 1; }
`
	writeBeside = beside + `read -r want
read -r was
cat > "$n"
[ "$(sha256sum < "$n" | cut -d ' ' -f 1)" = "$want" ] || { echo "what came is not all of it, and $f stays as it is" >&2; exit 1; }
sync -- "$n" 2>/dev/null || sync
[ "$(sha256sum < "$f" | cut -d ' ' -f 1)" = "$was" ] || { echo "$f was changed meanwhile, and stays as it is" >&2; exit 9; }
mv -f -- "$n" "$f"
sync -- "$(dirname -- "$f")" 2>/dev/null || sync
`
)

// create makes a file at $1 if there is none, in one step.
const create = `set -eu
umask 077
f=$1
d=$(dirname -- "$f")
[ -d "$d" ] || { echo "there is no folder $d: make it first" >&2; exit 1; }
n=$d/.$(basename -- "$f").atrest-$$
trap 'rm -f -- "$n"' EXIT
trap 'exit 1' HUP INT TERM
read -r want
cat > "$n"
[ "$(sha256sum < "$n" | cut -d ' ' -f 1)" = "$want" ] || { echo "what came is not all of it, and $f is not made" >&2; exit 1; }
sync -- "$n" 2>/dev/null || sync
if [ -e "$f" ] || [ -L "$f" ]; then exit 8; fi
ln -- "$n" "$f" || { [ ! -e "$f" ] || exit 8; exit 1; }
sync -- "$d" 2>/dev/null || sync
`

// Create is as that of [LocalFiles]. Its owner is the user of ssh.
func (f SSHFiles) Create(ctx context.Context, apiserver string, content []byte) error {
	err := f.run(ctx, apiserver, create, io.MultiReader(strings.NewReader(hash(content)+"\n"), bytes.NewReader(content)), io.Discard)
	if exitIs(err, 8) {
		err = isThere(f.At(apiserver))
	}
	return err
}

// At is where the file of an apiserver is, for people.
func (f SSHFiles) At(apiserver string) string {
	return Fill(f.host, apiserver) + ":" + Fill(f.path, apiserver)
}

func exitIs(err error, code int) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == code
}

// Check makes and removes a copy beside the file.
func (f SSHFiles) Check(ctx context.Context, apiserver string) error {
	return f.run(ctx, apiserver, beside, nil, io.Discard)
}

// Read reads a byte more than a configuration may have at most.
func (f SSHFiles) Read(ctx context.Context, apiserver string) ([]byte, error) {
	out := limited{left: config.MaxSize + 1}
	err := f.run(ctx, apiserver, `exec cat -- "$1"`, nil, &out)
	return out.kept.Bytes(), err
}

// Write exchanges a file in one step, with one of the same owner and mode.
func (f SSHFiles) Write(ctx context.Context, apiserver string, was, content []byte) error {
	head := strings.NewReader(hash(content) + "\n" + hash(was) + "\n")
	err := f.run(ctx, apiserver, writeBeside, io.MultiReader(head, bytes.NewReader(content)), io.Discard)
	if exitIs(err, 9) {
		err = fmt.Errorf("%w: %w", wholefile.ErrChanged, err)
	}
	return err
}

// run has a shell there run a script, with the path for $1.
func (f SSHFiles) run(ctx context.Context, apiserver, script string, in io.Reader, out io.Writer) error {
	host, path := Fill(f.host, apiserver), Fill(f.path, apiserver)
	args := []string{"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}
	if f.port != "" {
		args = append(args, "-p", f.port)
	}
	if f.user != "" {
		args = append(args, "-l", f.user)
	}
	args = append(args, "--", host, "exec sh -c "+quoteForShell(script)+" sh "+quoteForShell(path))
	said := limited{left: 4 << 10}
	_, err := call(ctx, limit{f.Timeout, "--hook-timeout"}, args, func(c *exec.Cmd) { c.Stdin, c.Stdout, c.Stderr = in, out, &said })
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(strings.ToValidUTF8(said.kept.String(), "?")), " ")
	if text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	if exitIs(err, 255) { // of ssh itself
		err = fmt.Errorf("%w: it is asked nothing: see that ssh -o BatchMode=yes %s true works", err, host)
	}
	return fmt.Errorf("ssh to %s for %s: %w", host, path, err)
}

// quoteForShell makes one word of a text.
func quoteForShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
