package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

func staleSocketReplaced(ctx context.Context, s *session) error {
	if _, err := s.keyID(ctx); err != nil {
		return err
	}
	wire, err := s.openWire(ctx)
	if err != nil {
		return err
	}
	defer wire.close()
	if err := wire.connection.Ping(ctx); err != nil {
		return err
	}
	file := s.socketFile()
	if err := s.Kill(ctx); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	// The kernel closes the connection of a process that ends.
	ended := eventually(ctx, s.patience(), wire.isClosed)
	left := s.isLeft(file)
	watch := s.watchLeft(file)
	failing := s.restart(ctx)
	switch {
	case ended != nil:
		watch.end()
		return errors.Join(fmt.Errorf("kill did not end the plugin: %w", ended), failing)
	case left != nil:
		watch.end()
		if err := errors.Join(failing, s.becomesWell(ctx)); err != nil {
			return errors.Join(left, err)
		}
		return untried{left.Error()}
	}
	well := s.becomesWell(ctx)
	gone := watch.end()
	if well != nil {
		return s.isInTheWay(ctx, file, errors.Join(failing, well))
	}
	return s.isRemover(gone)
}

// isInTheWay fails for a plugin that does not come back once more beside the socket file, and does when it
// is removed. What else has kept it away is not known to be its own doing: a command that fails, or a
// supervisor that has it wait after so many ends.
func (s *session) isInTheWay(ctx context.Context, file os.FileInfo, kept error) error {
	if ctx.Err() != nil { // nothing more is begun
		return kept
	}
	if s.restarted(ctx) == nil {
		return fmt.Errorf("it came back when it was restarted twice: %w", kept)
	}
	path, err := filepath.EvalSymlinks(s.address)
	if err != nil || !s.hasFile(file) || !errors.Is(s.dial(ctx), syscall.ECONNREFUSED) { // it is not there any more, or somebody may listen at it
		return errors.Join(kept, err)
	}
	if err := os.Remove(path); err != nil {
		return errors.Join(kept, err)
	}
	if err := s.restarted(ctx); err != nil {
		return fmt.Errorf("it came back neither beside the socket file nor without it: %w", err)
	}
	return failed("%v", kept)
}

// socketFile is the file of the socket, or nil: an abstract one has none.
func (s *session) socketFile() os.FileInfo {
	info, err := os.Stat(s.address)
	if isAbstract(s.address) || err != nil {
		return nil
	}
	return info
}

// hasFile reports whether the file of the socket is that one. Another may have got its number.
func (s *session) hasFile(file os.FileInfo) bool {
	now := s.socketFile()
	return now != nil && os.SameFile(file, now) && now.ModTime().Equal(file.ModTime())
}

// isLeft is an error unless the file of the socket is there as it was.
func (s *session) isLeft(file os.FileInfo) error {
	if isAbstract(s.address) {
		return nil // it has none, and so none can be in the way
	}
	if file == nil || !s.hasFile(file) {
		return errors.New("the plugin was killed, and its socket file was not there any more when it had ended, so that no other finds one in its way")
	}
	return nil
}

// A leftWatch looks for the moment at which a file that was left is gone.
type leftWatch struct {
	stop  chan struct{}
	ended sync.WaitGroup
	gone  instant // zero if it is not known
}

// watchLeft looks often: who removes the file may start the plugin at once.
func (s *session) watchLeft(file os.FileInfo) *leftWatch {
	w := &leftWatch{stop: make(chan struct{})}
	w.ended.Go(func() {
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for file != nil {
			if !s.hasFile(file) {
				w.gone = thisInstant()
				return
			}
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

// end is when the file was gone, or zero if that is not known.
func (w *leftWatch) end() instant {
	close(w.stop)
	w.ended.Wait()
	return w.gone
}

// isRemover is an error if the file was gone before the process began that listens now: then that has
// replaced nothing, and whatever has started it has removed the file.
func (s *session) isRemover(gone instant) error {
	if isAbstract(s.address) || gone == (instant{}) {
		return nil
	}
	peer, err := peerOf(s.address)
	if err != nil {
		return fmt.Errorf("who listens now is not known: %w", err)
	}
	if peer.PID == 0 {
		return nil // it is in another container
	}
	after, err := gone.isBefore(peer.PID)
	switch {
	case err != nil:
		return fmt.Errorf("when process %d began, which listens now, is not known: %w", peer.PID, err)
	case after:
		return untried{fmt.Sprintf("the socket file was removed before process %d began, which listens now: restart has to start the plugin and do no more, as after a crash", peer.PID)}
	}
	return nil
}
