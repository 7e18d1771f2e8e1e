//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A module is a vendor's library as it is loaded. PKCS#11 knows one application for each
// process: all that use the module share one login and one C_Initialize, and C_Finalize
// takes the sessions of all of them away.
type module struct {
	path   string
	driver driver
	// entering is for who looks for tokens, logs in, or initialises.
	entering *gate

	mu         sync.Mutex
	generation int // counts C_Initialize; sessions of an earlier one are over
	ready      bool
	calls      int // that run
	live       int // sessions that are not over
}

// loaded are the modules of this process, by path. None is ever unloaded: those who made
// them do not expect it, and a library cannot be loaded anew while a call of it runs.
var loaded = struct {
	sync.Mutex
	byPath map[string]*module
}{byPath: map[string]*module{}}

func load(path string) (*module, error) {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, moduleMistake(path, fmt.Sprintf("%v: install what the maker of the HSM gives, or name where it is", err))
	}
	loaded.Lock()
	defer loaded.Unlock()
	if m := loaded.byPath[file]; m != nil {
		return m, nil
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, moduleMistake(path, err.Error())
	case !info.Mode().IsRegular():
		return nil, moduleMistake(path, "it is no file")
	case info.Mode().Perm()&0o002 != 0:
		return nil, moduleMistake(path, "everybody may write it, and it is to be run: chmod o-w "+file)
	}
	context := cryptoki.New(file)
	if context == nil {
		return nil, moduleMistake(path, "it cannot be loaded as a PKCS#11 module: it is something else, for another machine, or a library is missing that ldd shows")
	}
	m := newModule(path, library{context})
	loaded.byPath[file] = m
	return m, nil
}

func moduleMistake(path, what string) error {
	return fmt.Errorf("%w: %w: module %s: %s", kmsplugin.ErrUnavailable, ErrMistake, path, what)
}

func newModule(path string, d driver) *module {
	return &module{path: path, driver: d, entering: newGate()}
}

// enter waits for its turn.
func (m *module) enter(ctx context.Context) (leave func(), err error) {
	leave, err = m.entering.enter(ctx, ctx)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", m.path, err)
	}
	return leave, nil
}

// start initialises the module if it is not. Who calls it has entered.
func (m *module) start() error {
	m.mu.Lock()
	ready := m.ready
	m.mu.Unlock()
	if ready {
		return nil
	}
	if err := m.driver.Initialize(); err != nil && !isCode(err, cryptoki.CKR_CRYPTOKI_ALREADY_INITIALIZED) {
		return fmt.Errorf("%w: module %s: C_Initialize: %w: does its configuration name a place that is there?", kmsplugin.ErrUnavailable, m.path, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = true
	m.generation++
	return nil
}

var (
	errInUse = errors.New("other sessions of this process are well")
	errStuck = fmt.Errorf("%w: calls into the module have not returned, so that it cannot be initialised again: restart the plugin if the device is back", kmsplugin.ErrUnavailable)
)

// restart initialises it again, which many modules need to see a device that was away. One that
// cannot end has its sessions given up, which would be open for ever. Who calls it has entered.
func (m *module) restart(giveUp func()) error {
	m.mu.Lock()
	if m.live > 0 || m.calls > 0 {
		defer m.mu.Unlock()
		if m.live > 0 {
			return errInUse
		}
		return errStuck
	}
	wasReady := m.ready
	m.ready = false // from here on no call begins
	m.mu.Unlock()
	if wasReady && m.driver.Finalize() != nil {
		m.set(true)
		giveUp()
		m.set(false)
	}
	return m.start()
}

func (m *module) set(ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = ready
}

// begin lets a call of a session go ahead, unless the module was initialised since.
func (m *module) begin(generation int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready || m.generation != generation {
		return errOver
	}
	m.calls++
	return nil
}

func (m *module) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls--
}

func (m *module) isInUse() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live > 0
}

// joined counts a session that is well, and left one that is not any more.
func (m *module) joined() (generation int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live++
	return m.generation
}

func (m *module) left() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live--
}
