package node

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// Processes is the [Runner] of processes on this machine. A process is one of its own only if
// its number and its birth are those on record, and the record was made before its program began. It
// may have begun another since, as env(1) does.
type Processes struct {
	// Launcher is a command that calls [Launch] with the arguments that follow.
	Launcher []string
	// Program is what is run for settings that name none: the path of atrest-kms-plugin.
	Program string
	// Limits are those of each plugin, and Env its whole environment, as NAME=VALUE: no
	// credential belongs in it.
	Limits Limits
	Env    []string
}

var _ Runner = (*Processes)(nil)

// started is the record of a process, in the folder of its instance.
type started struct {
	Life life `json:"life"`
	// Path is where the program was, for people.
	Path string `json:"path"`
}

const startedName = "process.json"

// Start has the process of an instance run, on record before its program begins.
func (r *Processes) Start(s Spec) error {
	path := cmp.Or(s.Program.Path, r.Program)
	file, err := openProgram(path, s.Program.SHA256)
	if err != nil {
		return err
	}
	defer file.Close()
	logFile, err := os.OpenFile(filepath.Join(s.Folder, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	waits, gate, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gate.Close()
	pid, err := r.fork(launch{Limits: r.Limits, Args: append([]string{path}, s.Arguments...)}, logFile, file, waits)
	err = errors.Join(err, waits.Close())
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	if err := onRecord(s, pid, path); err != nil {
		_ = gate.Close() // at which it ends
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return err
	}
	_, err = gate.Write([]byte{goAhead})
	return err
}

// ProgramNow tells a program from another that has its place by now.
func (r *Processes) ProgramNow(p bundle.Program) string {
	info, err := os.Stat(cmp.Or(p.Path, r.Program))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(p.Image, info.Name(), info.Size(), info.ModTime().UnixNano())
}

func onRecord(s Spec, pid int, path string) error {
	l, err := lifeOf(pid)
	if err != nil {
		return err
	}
	text, err := json.Marshal(started{Life: l, Path: path})
	if err != nil {
		return err
	}
	return wholefile.Write(filepath.Join(s.Folder, startedName), text)
}

// fork starts the launcher, in a session of its own: what ends the node's does not end a plugin.
func (r *Processes) fork(l launch, logFile, program, gate *os.File) (pid int, err error) {
	told, err := json.Marshal(l)
	if err != nil {
		return 0, err
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer nothing.Close()
	process, err := os.StartProcess(r.Launcher[0], append(append([]string{}, r.Launcher...), string(told)), &os.ProcAttr{
		Dir:   "/",
		Env:   append([]string{}, r.Env...),
		Files: []*os.File{nothing, logFile, logFile, program, gate},
		Sys:   detached(),
	})
	if err != nil {
		return 0, err
	}
	pid = process.Pid
	return pid, process.Release()
}

// openProgram opens a program whose content has a digest. The very file that was read is run:
// another that is put in its place meanwhile is not.
func openProgram(path, digest string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("program of the plugin: %w", err)
	}
	if err := checkProgram(file, digest); err != nil {
		return nil, errors.Join(fmt.Errorf("program of the plugin: %s: %w", path, err), file.Close())
	}
	return file, nil
}

func checkProgram(file *os.File, digest string) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is no file")
	case info.Mode().Perm()&0o111 == 0:
		return errors.New("it may not be executed: chmod +x")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to it (%s): chmod go-w", info.Mode())
	}
	begins := make([]byte, 2)
	if _, err := file.ReadAt(begins, 0); err == nil && string(begins) == "#!" {
		return errors.New("it is a script, and its interpreter would be run, whose digest nobody knows: name a program")
	}
	if digest == "" {
		return nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if is := "sha256:" + hex.EncodeToString(hash.Sum(nil)); is != digest {
		return fmt.Errorf("it has the digest %s, and the bundle names %s: put the right one there", is, digest)
	}
	return nil
}

// recordOf is the process of an instance. There is none if it was never started.
func recordOf(s Spec) (started, error) {
	text, err := os.ReadFile(filepath.Join(s.Folder, startedName))
	if err != nil {
		return started{}, err
	}
	var p started
	if err := json.Unmarshal(text, &p); err != nil {
		return started{}, fmt.Errorf("record of the process of %s: %w", s.Instance, err)
	}
	return p, nil
}

// Runs reports whether the process is there.
func (r *Processes) Runs(s Spec) (bool, error) {
	p, err := recordOf(s)
	if errors.Is(err, fs.ErrNotExist) {
		return false, startedOtherwise(s, manifestedName)
	}
	if err != nil {
		return false, err
	}
	// One that this process started is waited for here, or it would stay a zombie.
	_, _ = unix.Wait4(p.Life.PID, nil, unix.WNOHANG, nil)
	return p.Life.lasts()
}

// Proves compares who listens, as the kernel tells it, with the process on record.
func (r *Processes) Proves(s Spec, conn *net.UnixConn) error {
	p, err := recordOf(s)
	if err != nil {
		return err
	}
	peer, err := listener(conn)
	if err != nil {
		return err
	}
	if int(peer.Pid) != p.Life.PID {
		return fmt.Errorf("process %d listens, and %d was started", peer.Pid, p.Life.PID)
	}
	there, err := p.Life.lasts()
	if err == nil && !there {
		err = fmt.Errorf("process %d has ended, and another has its number", p.Life.PID)
	}
	return err
}

// listener is who called listen for the socket at the other end.
func listener(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("who listens is not known: %w", err)
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("who listens is not known: %w", err)
	}
	if failed != nil {
		return nil, fmt.Errorf("who listens is not known: %w", failed)
	}
	return peer, nil
}

// Stop sends SIGTERM or SIGKILL. The process is held by a descriptor while it is proven to be
// the one, so that no other that gets its number can be met.
func (r *Processes) Stop(s Spec, hard bool) error {
	p, err := recordOf(s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	held, err := unix.PidfdOpen(p.Life.PID, 0)
	if isNone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.Life.PID, err)
	}
	defer unix.Close(held)
	if there, err := p.Life.lasts(); err != nil || !there {
		return err
	}
	signal := unix.SIGTERM
	if hard {
		signal = unix.SIGKILL
	}
	if err := unix.PidfdSendSignal(held, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", p.Life.PID, err)
	}
	return nil
}

// Clear has nothing to do: all is in the folder of the instance.
func (r *Processes) Clear(Spec) error { return nil }
