package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func socketChecks() []Check {
	return []Check{{
		ID:      "socket-mode",
		Says:    "Nobody but root, the plugin's user and group, and the user and group that the socket is for can connect to it or put another in its place.",
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
	resolved, err := filepath.EvalSymlinks(s.address)
	if err != nil {
		return err
	}
	socket, err := os.Stat(resolved)
	if err != nil {
		return err
	}
	peer, err := peerOf(s.address)
	if err != nil {
		return err
	}
	of, known := ownerOf(socket)
	switch mode := socket.Mode().Perm(); {
	case mode&0o002 != 0 && othersReach(filepath.Dir(resolved), nobody):
		return failed("the socket has mode %04o, and its folder lets everybody through", mode)
	case known && peer.UID >= 0 && of.isAnother(peer.UID, os.Geteuid()):
		return failed("the socket is owned by uid %d, and the plugin is of uid %d: if it is for that user, as the apiserver's, run this as that user", of.uid, peer.UID)
	}
	groups := []int{0, nobody, peer.GID, os.Getegid()}
	if socket.Mode().Perm()&0o020 != 0 {
		groups = append(groups, of.gid) // which it is for
	}
	a := allowed{uids: []int{0, nobody, peer.UID, os.Geteuid()}, gids: groups}
	return cmp.Or(a.alone(filepath.Dir(s.address), peer), a.alone(filepath.Dir(resolved), peer))
}

// An owner is that of a file, and its group.
type owner struct{ uid, gid int }

// isAnother reports whether a socket is neither root's nor the plugin's, nor of the user who asks, whom it is
// for then: a .socket unit of systemd gives it away, by SocketUser.
func (o owner) isAnother(plugins, asks int) bool {
	return !slices.Contains([]int{0, plugins, asks}, o.uid)
}

// othersReach reports whether everybody, or a group, may go into a folder, and those above it.
func othersReach(folder string, group int) bool {
	for _, folder := range upFrom(folder) {
		info, err := os.Stat(folder)
		if err != nil {
			return false
		}
		of, known := ownerOf(info)
		if mode := info.Mode().Perm(); mode&0o001 == 0 && (!known || of.gid != group || mode&0o010 == 0) {
			return false
		}
	}
	return true
}

// nobody is who owns what is another user namespace's, which tells nothing.
const nobody = 65534

// allowed are who may put another socket in the place of the plugin's: its user and group, and those of
// the one who asks, as the apiserver's.
type allowed struct{ uids, gids []int }

// alone fails if anybody else may rename what is in the folder of the socket, or in one above it, by
// the names that are written and by those that links among them stand for.
func (a allowed) alone(written string, peer Peer) error {
	resolved, err := filepath.EvalSymlinks(written)
	if err != nil {
		return err
	}
	for _, folder := range append(upFrom(written), upFrom(resolved)...) {
		info, err := os.Stat(folder)
		if err != nil {
			return err
		}
		of, known := ownerOf(info)
		mode, sticky := info.Mode().Perm(), info.Mode()&fs.ModeSticky != 0
		switch {
		case mode&0o002 != 0 && !sticky && othersReach(folder, nobody):
			return failed("everybody may put another socket in its place, in folder %s, which has mode %04o", folder, mode)
		case !known || peer.UID < 0:
		case !slices.Contains(a.uids, of.uid):
			return failed("uid %d may put another socket in its place, in folder %s, which is that user's", of.uid, folder)
		case mode&0o020 != 0 && !sticky && !slices.Contains(a.gids, of.gid) && othersReach(folder, of.gid):
			return failed("group %d may put another socket in its place, in folder %s, which has mode %04o", of.gid, folder, mode)
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
	case !s.isNamed(ended.Error()):
		return fmt.Errorf("the second plugin ended or was ended after %s, and did not name the socket other than as a setting, so that it may have ended for something else or not have come to it: "+
			"give it all that it needs, with ports of its own, a --timeout in which it starts, and have it print what it does: %w", s.Timeout, ended)
	}
	return nil
}

// isNamed reports whether a text tells of the socket, and does not only print a setting that has it, as
// many programs do with all of them when they start.
func (s *session) isNamed(text string) bool {
	value := `(unix:(//)?)?` + regexp.QuoteMeta(s.address)
	setting := regexp.MustCompile(`(?m)(((^|\s)--?[\w.-]+[ =])|"--?[\w.-]+\\?"[\s,]+|\b[\w.-]+=|"[\w.-]+\\?"\s*:\s*|\b[A-Z]\w*:)` +
		`(["'\\]+` + value + `["'\\]|` + value + `([\s,;})\]"'\\]|$))`)
	return strings.Contains(setting.ReplaceAllString(text, ""), s.address)
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
