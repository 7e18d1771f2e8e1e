package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func socketChecks() []Check {
	return []Check{{
		ID:      "socket-mode",
		Says:    "Nobody but root and the plugin's user and group can connect to the socket or put another in its place.",
		Source:  "KEP-3299: the socket is the only protection; abstract sockets have none",
		Suffers: "every process on the node has any data key decrypted, or is given new ones.",
		run:     socketMode,
	}, {
		ID:      "live-socket-stays",
		Says:    "A second plugin that is started on the same endpoint leaves the first one its socket.",
		Source:  "plugins that remove the socket file before they listen",
		Suffers: "a plugin started by mistake takes over, with another key, and the first serves nobody any more.",
		Needs:   []Need{NeedSecond},
		run:     liveSocketStays,
	}}
}

func socketMode(_ context.Context, s *session) error {
	if isAbstract(s.address) {
		return failed("it is an abstract socket: any process may take its name while the plugin is down")
	}
	socket, err := os.Stat(s.address)
	if err != nil {
		return err
	}
	peer, err := peerOf(s.address)
	if err != nil {
		return err
	}
	owner, known := ownerOf(socket)
	switch mode := socket.Mode().Perm(); {
	case mode&0o002 != 0 && othersReach(filepath.Dir(s.address)):
		return failed("the socket has mode %04o, and its folder lets everybody through", mode)
	case known && peer.UID >= 0 && owner != 0 && owner != peer.UID:
		return failed("the socket is owned by uid %d, and the plugin is of uid %d", owner, peer.UID)
	}
	return foldersAreSafe(filepath.Dir(s.address), peer.UID)
}

// othersReach reports whether everybody may go into a folder, and those above it.
func othersReach(folder string) bool {
	for _, folder := range upFrom(folder) {
		info, err := os.Stat(folder)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
	}
	return true
}

// nobody is who owns what is another user namespace's, which tells nothing.
const nobody = 65534

// foldersAreSafe fails if everybody, or another user, may rename what is in the folder of the socket,
// or in one above it, by the names that are written and by those that links among them stand for. The
// plugin's user is no other, and neither is the one who asks, as the apiserver's.
func foldersAreSafe(written string, plugins int) error {
	resolved, err := filepath.EvalSymlinks(written)
	if err != nil {
		return err
	}
	for _, folder := range append(upFrom(written), upFrom(resolved)...) {
		info, err := os.Stat(folder)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 && othersReach(folder) {
			return failed("everybody may put another socket in its place, in folder %s, which has mode %04o", folder, info.Mode().Perm())
		}
		if owner, known := ownerOf(info); known && plugins >= 0 && !slices.Contains([]int{0, nobody, plugins, os.Geteuid()}, owner) {
			return failed("uid %d may put another socket in its place, in folder %s, which is that user's", owner, folder)
		}
	}
	return nil
}

// upFrom is a folder and those above it.
func upFrom(folder string) []string {
	if folder == filepath.Dir(folder) {
		return []string{folder}
	}
	return append([]string{folder}, upFrom(filepath.Dir(folder))...)
}

func liveSocketStays(ctx context.Context, s *session) error {
	if isAbstract(s.address) {
		return fmt.Errorf("an abstract socket is no file: whether it is the same cannot be seen")
	}
	before, err := os.Stat(s.address)
	if err != nil {
		return err
	}
	trying, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	ended := s.Second(trying)
	if errors.Is(ended, ErrNotRun) {
		return fmt.Errorf("second: %w", ended)
	}
	after, err := os.Stat(s.address)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return s.bringBack(ctx, failed("the socket is gone: %v", err))
	case !os.SameFile(before, after):
		return s.bringBack(ctx, failed("there is another socket in its place"))
	}
	if err := s.dial(ctx); err != nil {
		return s.bringBack(ctx, failed("nobody listens any more: %v", err))
	}
	if err := s.cameToTheSocket(ended); err != nil {
		return err
	}
	_, err = s.keyID(ctx)
	return err
}

// cameToTheSocket is an error unless a second plugin has named the socket, whether it ended for
// its sake or was ended while it waited: else it may have ended for something else, or may have
// been about to take it when it was ended.
func (s *session) cameToTheSocket(ended error) error {
	switch {
	case ended == nil:
		return errors.New("the second plugin ended and said nothing: whether it came to the socket is not known")
	case !strings.Contains(ended.Error(), s.address):
		return fmt.Errorf("the second plugin ended or was ended after %s, and did not name the socket, so that it may have ended for something else or not have come to it: "+
			"give it all that it needs, with ports of its own, a --timeout in which it starts, and have it print what it does: %w", s.Timeout, ended)
	}
	return nil
}

// bringBack restarts, if it can, a plugin that a check has found wanting, so that the
// next check has one.
func (s *session) bringBack(ctx context.Context, found error) error {
	if s.Restart == nil {
		return found
	}
	if err := s.restart(ctx); err != nil {
		return failed("%v; and restart: %v", found, err)
	}
	_ = s.becomesWell(ctx) // if not, the next check says so
	return found
}
