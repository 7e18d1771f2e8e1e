package atrest_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// A file that is deleted while its plugin is waited for, or after it was refused: what
// was tried is let go.
func TestADeletedFileLetsGoWhatWasTried(t *testing.T) {
	y := newTrying(t)
	require.EqualValues(t, 1, y.held.open.Load())
	require.NoError(t, os.Remove(e2path(y.Encryption)))
	y.step(func() bool { return strings.Contains(reloadOf(y.Encryption).Error, "cannot read") })
	require.Eventually(t, func() bool { return y.held.open.Load() == 0 }, 3*time.Second, 10*time.Millisecond, "nobody will ever use it, and the connection stays")
}

func e2path(e *atrest.Encryption) string { return e.Status().ConfigFile }

// A POST that comes within a second of another does not have the plugin asked again
// (docs, Ask, ServeStatus).
func TestWhoAsksWithinASecondIsTold(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	o := optionsFor(path)
	clock := fakeTime(o)
	e := start(t, o)
	clock.Step(10 * time.Second)
	before := p.Calls().Status
	for range 5 {
		askStatus(t, e)
	}
	require.LessOrEqual(t, p.Calls().Status-before, 1)
}
