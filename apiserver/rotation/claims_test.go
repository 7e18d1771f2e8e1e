package rotation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the command says, in its words. A test that holds it to something knows them from
// here.
const (
	saysFinished = "finished: "
	saysStop     = "may be stopped"
	saysDisable  = "may be disabled"
	saysLeft     = "waiting: left"
	saysUnread   = "cannot be read"
	saysThrough  = "through apiserver "
)

// requireNothingMayGo requires that it has not ended, and never said that something may
// be stopped or disabled.
func (r *command) requireNothingMayGo(t *testing.T) {
	t.Helper()
	require.False(t, r.finished(t), r.Log())
	for _, claim := range []string{saysFinished, saysStop, saysDisable} {
		require.NotContains(t, r.Log(), claim)
	}
}

// tellsDeaf reports whether it has told that an apiserver cannot read what another wrote.
func (r *command) tellsDeaf(apiserver string) bool {
	for line := range strings.Lines(r.Log()) {
		if _, why, unread := strings.Cut(line, saysUnread); unread && strings.Contains(why, saysThrough+apiserver) {
			return true
		}
	}
	return false
}

// tellsLeft reports whether it has told that the last count found something under the old
// provider.
func (r *command) tellsLeft() bool { return strings.Contains(r.Log(), saysLeft) }
