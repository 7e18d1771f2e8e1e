package nodes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/kmsplugin"
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

// faulty is key files, whose plugins do wrong when they are told to.
type faulty struct {
	*keyFiles
	program bundle.Program
	file    string // with the fault
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	f := &faulty{newKeyFiles(t), bundle.Program{Path: self, SHA256: digest(t, self)}, filepath.Join(t.TempDir(), "fault")}
	f.become(well)
	return f
}

// become has the plugins do what is wrong from now on.
func (f *faulty) become(next fault) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.file+".next", []byte(next), 0o600))
	require.NoError(f.t, os.Rename(f.file+".next", f.file))
}

// plugin is a program of its own.
func (f *faulty) plugin(keyID bundle.KeyID) bundle.DraftPlugin {
	f.t.Helper()
	return bundle.DraftPlugin{KeyID: keyID, Settings: settings(f.program, fmt.Sprintf(
		"command: {kek: a file of keys, arguments: [-test.run=^TestServeAFaultyPlugin$$, %q, %q, $(endpoint)]}\n", f.file, f.key(keyID)))}
}

// It is a plugin where it is started as one: with the file that has the fault, that with the keys, and
// where to listen.
func TestServeAFaultyPlugin(t *testing.T) {
	if flag.NArg() != 3 {
		t.Skip("this is a plugin that others start")
	}
	keys, err := harness.Keys(flag.Arg(1))
	require.NoError(t, err)
	require.NoError(t, harness.Serve(flag.Arg(2), misled{keys, flag.Arg(0)}))
}

// misled is a plugin that does wrong as a file says.
type misled struct {
	kmsplugin.Service
	file string
}

func (m misled) Status(ctx context.Context) (string, error) {
	if _, err := m.wrong(ctx); err != nil {
		return "", err
	}
	return m.Service.Status(ctx)
}

func (m misled) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	is, err := m.wrong(ctx)
	if err != nil {
		return nil, err
	}
	plain, err := m.Service.Decrypt(ctx, uid, sealed)
	if err == nil && is == lies {
		clear(plain)
	}
	return plain, err
}

func (m misled) wrong(ctx context.Context) (fault, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	switch is := fault(text); is {
	case fails:
		return is, errors.New("it fails as it was told to")
	case hangs:
		<-ctx.Done()
		return is, ctx.Err()
	default:
		return is, nil
	}
}
