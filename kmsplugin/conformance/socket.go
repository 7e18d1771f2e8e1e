package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	return foldersAreSafe(filepath.Dir(s.address))
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

// foldersAreSafe fails if everybody may rename what is in the folder of the socket, or in one
// above it, by the names that are written and by those that links among them stand for.
func foldersAreSafe(written string) error {
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
	outlived := trying.Err() != nil
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
	if !outlived {
		if err := s.cameToTheSocket(ended); err != nil {
			return err
		}
	}
	_, err = s.keyID(ctx)
	return err
}

// cameToTheSocket is an error unless a second plugin that ended by itself did so for the
// socket's sake, which it then names.
func (s *session) cameToTheSocket(ended error) error {
	switch {
	case ended == nil:
		return errors.New("the second plugin ended by itself and said that all is well: whether it tried is not known")
	case !strings.Contains(ended.Error(), s.address):
		return fmt.Errorf("the second plugin ended and did not name the socket, so that it may have ended for something else: "+
			"give it all that it needs, with ports of its own, and have it print its errors: %w", ended)
	}
	return nil
}

// bringBack restarts, if it can, a plugin that a check has found wanting, so that the
// next check has one.
func (s *session) bringBack(ctx context.Context, found error) error {
	if s.Restart == nil {
		return found
	}
	if err := s.Restart(ctx); err != nil {
		return failed("%v; and restart: %v", found, err)
	}
	_ = s.becomesWell(ctx) // if not, the next check says so
	return found
}
