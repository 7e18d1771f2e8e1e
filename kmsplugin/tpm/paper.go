package tpm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// paper is a recovery key that is made new, for somebody to write down. A nil one is none.
type paper struct {
	text   string
	key    *recoveryKey
	ready  bool // all is sealed for it, and the file is changed next
	writes KeyInfo
	shown  bool
}

func newPaper(random io.Reader) (*paper, error) {
	text, key, err := newRecovery(random)
	if err != nil {
		return nil, err
	}
	return &paper{text: text, key: key}, nil
}

// show shows a new recovery key before the file needs it.
func (s *Store) show(writes KeyInfo, p *paper) error {
	if p == nil {
		return nil
	}
	if s.config.Show != nil {
		if err := s.config.Show(writes, p.text); err != nil {
			return fmt.Errorf("nothing is changed, as the recovery key could not be shown: %w", err)
		}
		p.shown = true
	}
	p.ready, p.writes = true, writes
	return nil
}

// tell is what came of a change, with the recovery key that was made for it. After an error it is
// told where the file has it, or that cannot be seen: one too many is better than none.
func (s *Store) tell(info KeyInfo, p *paper, err error) (KeyInfo, string, error) {
	switch {
	case err == nil && p == nil:
		return info, "", nil
	case err == nil:
		return info, p.text, nil
	case p == nil || !p.ready:
		return KeyInfo{}, "", err
	case s.mayHave(p):
		return p.writes, p.text, fmt.Errorf("the file is sealed for the new recovery key: keep that and the one before, if there was one, until reseal --recovery has ended well: %w", err)
	case p.shown:
		return KeyInfo{}, "", fmt.Errorf("nothing is changed: the recovery key that was shown opens nothing, strike it out; the one before is good: %w", err)
	}
	return KeyInfo{}, "", err
}

// mayHave is false where the file is surely not sealed for a recovery key.
func (s *Store) mayHave(p *paper) bool {
	now, _, err := s.load()
	if now == nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return bytes.Equal(now.recovery, p.key.public(formatVersion))
}
