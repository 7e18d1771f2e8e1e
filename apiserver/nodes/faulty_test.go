package nodes

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// fault is what a plugin does wrong.
type fault string

const (
	well  fault = "well"
	fails fault = "fails"
	hangs fault = "hangs"
	lies  fault = "lies" // gives back something else than it was given
)

// faulty is a back end whose plugins do wrong when they are told to.
type faulty struct {
	t       *testing.T
	program bundle.Program
	file    string // with the fault
}

func newFaulty(t *testing.T, begins fault) *faulty {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	f := &faulty{t: t, program: bundle.Program{Path: self, SHA256: digest(t, self)}, file: filepath.Join(t.TempDir(), "fault")}
	f.become(begins)
	return f
}

// become has the plugins do what is wrong from now on.
func (f *faulty) become(next fault) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.file+".next", []byte(next), 0o600))
	require.NoError(f.t, os.Rename(f.file+".next", f.file))
}

func (f *faulty) plugin(keyID bundle.KeyID) bundle.DraftPlugin {
	return bundle.DraftPlugin{KeyID: keyID, Settings: settings(f.program, fmt.Sprintf(
		"command: {kek: a key of base64, arguments: [-test.run=^TestServeAFaultyPlugin$$, %q, $(socket)]}\n", f.file))}
}

// It is a plugin where it is started as one, with the file that has the fault and the path of the socket.
func TestServeAFaultyPlugin(t *testing.T) {
	if flag.NArg() != 2 {
		t.Skip("this is a plugin that others start")
	}
	p := faultplugin.At(t, flag.Arg(1))
	did := fault("")
	for looks := time.NewTicker(pause); ; <-looks.C {
		text, err := os.ReadFile(flag.Arg(0))
		require.NoError(t, err)
		if is := fault(text); is != did {
			p.Set(is.behave)
			if did == "" {
				p.Serve()
			}
			did = is
		}
	}
}

func (f fault) behave(b *faultplugin.Behaviour) {
	*b = faultplugin.Healthy("1")
	switch f {
	case fails:
		b.StatusErr = errors.New("it fails as it was told to")
	case hangs:
		b.Hang = true
	case lies:
		b.Garbage = []byte("this is not what was encrypted")
	}
}
