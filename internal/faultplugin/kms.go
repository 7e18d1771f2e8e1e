package faultplugin

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// KMS is a plugin, and the KMS behind it, that wraps with real keys and does all that
// a plugin has to, but for its flaws. Its process is a server that is ended and
// started. It is safe for concurrent use.
type KMS struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	folder, path string
	flaws        map[Flaw]bool

	life     sync.Mutex // one change of the process at a time
	server   *grpc.Server
	listener *listener

	sealed  atomic.Uint64 // calls
	alarmed atomic.Uint64 // calls of Status while there was trouble

	mu      sync.Mutex
	keks    map[int]*kek
	current *kek
	told    string          // the key_id that Status named last
	known   map[string]*kek // by key_id
	mended  chan struct{}   // closed by Mend; nil while nothing is broken
	tired   bool            // broken once, until the next start
	broken  error           // what is told of it
	starts  int
	anew    int // times that the key was made anew
	asked   int // calls of Status in a row
	opened  int // calls of Decrypt that went well
	running int // calls of Encrypt
	labels  int // answers of Encrypt
	slots   chan struct{}
	log     bytes.Buffer
	lagging int  // calls of Status since a rotation
	before  *kek // the current one, before the last rotation
	back    int  // calls since a rotation has shown
	stale   *kek // that Encrypt goes on with, or nil
	late    int  // calls for which trouble may not be over yet
	opens   bool // a Decrypt is left
	doomed  bool // the next Status ends it
}

// A kek wraps.
type kek struct {
	version int
	name    string // of its own
	id      string // for all to see
	aead    cipher.AEAD
	stream  []byte // of the flaw that uses it twice
}

// StartKMS makes a plugin that serves, and ends with the test.
func StartKMS(t testing.TB, flaws ...Flaw) *KMS {
	folder, err := os.MkdirTemp("", "kms")
	require.NoError(t, err)
	p := &KMS{folder: folder, path: filepath.Join(folder, "kms.sock"), flaws: map[Flaw]bool{}, keks: map[int]*kek{}, known: map[string]*kek{}}
	for _, flaw := range flaws {
		p.flaws[flaw] = true
	}
	if p.flaws[AbstractSocket] {
		p.path = "@" + p.path
	}
	if p.flaws[OpenAbove] {
		p.path = filepath.Join(folder, "own", "kms.sock")
		require.NoError(t, os.Mkdir(filepath.Dir(p.path), 0o700))
		require.NoError(t, os.Chmod(filepath.Dir(p.path), 0o755))
		require.NoError(t, os.Chmod(folder, 0o777))
	}
	p.makeKEK()
	require.NoError(t, p.start())
	t.Cleanup(func() {
		require.NoError(t, p.Kill(context.Background()))
		require.NoError(t, os.RemoveAll(folder))
	})
	return p
}

// Endpoint is where the plugin serves.
func (p *KMS) Endpoint() string {
	if p.flaws[AbstractSocket] {
		return "unix:///" + p.path
	}
	return "unix://" + p.path
}

// makeKEK adds a version that wraps from now on.
func (p *KMS) makeKEK() {
	p.mu.Lock()
	defer p.mu.Unlock()
	block, err := aes.NewCipher(randomBytes(32))
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has a GCM
	}
	k := &kek{version: len(p.keks) + 1, name: hex.EncodeToString(randomBytes(16)), aead: aead, stream: randomBytes(64)}
	k.id = p.idOf(k)
	if p.flaws[ForgetsOldKeys] {
		clear(p.known)
	}
	p.before, p.back, p.stale = p.current, 0, nil
	p.keks[k.version], p.current, p.known[k.id] = k, k, k
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// Rotate makes a new version of the key.
func (p *KMS) Rotate(context.Context) error {
	p.makeKEK()
	return nil
}

// Recreate makes another key with a first version; what was wrapped is lost.
func (p *KMS) Recreate(context.Context) error {
	p.mu.Lock()
	clear(p.keks)
	clear(p.known)
	p.anew++
	p.mu.Unlock()
	p.makeKEK()
	return nil
}

// Break takes the keys away.
func (p *KMS) Break(ctx context.Context) error {
	return p.BreakAs(codes.Unavailable, "the KMS is away")(ctx)
}

// BreakAs takes the keys away for a reason, which is told by this code.
func (p *KMS) BreakAs(code codes.Code, why string) func(context.Context) error {
	return func(context.Context) error { return p.breakAs(status.Error(code, why)) }
}

func (p *KMS) breakAs(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mended != nil {
		return errors.New("it is broken already")
	}
	p.mended, p.tired, p.broken = make(chan struct{}), p.flaws[StaysBroken], err
	return nil
}

// Mend gives them back.
func (p *KMS) Mend(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mended == nil {
		return errors.New("it is not broken")
	}
	close(p.mended)
	p.mended = nil
	if p.flaws[OldAfterTrouble] {
		p.stale = p.before
	}
	if p.flaws[LateDecrypt] || p.flaws[LateMachine] {
		p.late = 20
	}
	if p.flaws[ForgetsInTrouble] {
		clear(p.known)
		p.known[p.current.id] = p.current
	}
	return nil
}

// start begins to serve.
func (p *KMS) start() error {
	if !p.flaws[KeepsStaleSocket] {
		_ = os.Remove(p.path)
	}
	under, err := net.Listen("unix", p.path)
	if err != nil {
		return err
	}
	under.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := p.access(); err != nil {
		return err
	}
	p.mu.Lock()
	p.starts++
	p.tired, p.slots = false, make(chan struct{}, places)
	p.load()
	p.mu.Unlock()
	p.server, p.listener = grpc.NewServer(grpc.ForceServerCodecV2(breaking{encoding.GetCodecV2(proto.Name)})), &listener{Listener: under}
	if !p.flaws[OnlyV1] {
		kmsapi.RegisterKeyManagementServiceServer(p.server, p)
	}
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(p.server, p.listener)
	return nil
}

// access is who may reach the socket.
func (p *KMS) access() error {
	switch {
	case p.flaws[AbstractSocket]:
		return nil // it has no mode
	case p.flaws[OpenToAll]:
		return errors.Join(os.Chmod(p.path, 0o777), os.Chmod(p.folder, 0o755))
	case p.flaws[OpenFolder]:
		return errors.Join(os.Chmod(p.path, 0o600), os.Chmod(p.folder, 0o777))
	case p.flaws[GroupsFolder]:
		return errors.Join(os.Chmod(p.path, 0o600), os.Chown(p.folder, -1, 12345), os.Chmod(p.folder, 0o775))
	case p.flaws[OthersFolder]:
		return errors.Join(os.Chmod(p.path, 0o600), os.Chown(p.folder, 12345, -1))
	case p.flaws[OthersSocket]:
		return errors.Join(os.Chmod(p.path, 0o600), os.Chown(p.path, 12345, -1))
	}
	return os.Chmod(p.path, 0o600)
}

// load has what a start knows; p.mu is held.
func (p *KMS) load() {
	if p.flaws[CountsNonces] {
		p.sealed.Store(0)
	}
	if p.flaws[OldAtStart] {
		p.stale = p.before
	}
	if p.flaws[ForgetsAtStart] {
		clear(p.known)
	}
	for _, k := range p.keks {
		if !p.flaws[ForgetsAtStart] || k == p.current {
			k.id = p.idOf(k)
			p.known[k.id] = k
		}
	}
}

// Restart ends the plugin in good order, if it runs, and starts it.
func (p *KMS) Restart(context.Context) error {
	p.life.Lock()
	defer p.life.Unlock()
	if p.server != nil {
		p.server.Stop()
		_ = os.Remove(p.path)
	}
	p.server = nil
	return p.start()
}

// KillWhenAsked ends it at the next call of Status, which is not answered.
func (p *KMS) KillWhenAsked(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doomed = true
	return nil
}

// Kill ends it, and leaves the socket file.
func (p *KMS) Kill(context.Context) error {
	p.life.Lock()
	defer p.life.Unlock()
	if p.server != nil {
		p.server.Stop()
		p.server = nil
	}
	return nil
}

// Terminate removes the socket, and ends the plugin when its last call has ended.
func (p *KMS) Terminate(context.Context) error {
	p.life.Lock()
	defer p.life.Unlock()
	if p.server == nil {
		return errors.New("it does not run")
	}
	server := p.server
	p.server = nil
	err := p.listener.Close()
	if !p.flaws[AbstractSocket] {
		err = errors.Join(os.Remove(p.path), err)
	}
	if p.flaws[CutsCalls] {
		server.Stop()
	} else {
		go server.GracefulStop()
	}
	return err
}

// Second starts another plugin on the same socket, which has to give way.
func (p *KMS) Second(ctx context.Context) error {
	if p.flaws[SecondIsLate] {
		<-ctx.Done()
		return ctx.Err()
	}
	if p.flaws[SecondEndsEarly] {
		return errors.New("metrics: listen tcp 127.0.0.1:9090: bind: address already in use")
	}
	if !p.flaws[TakesTheSocket] {
		conn, err := net.Dial("unix", p.path)
		if err != nil {
			return err
		}
		return errors.Join(fmt.Errorf("somebody serves at %s", p.path), conn.Close())
	}
	if err := os.Remove(p.path); err != nil {
		return err
	}
	other, err := net.Listen("unix", p.path)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return other.Close()
}

// Log is what was logged so far.
func (p *KMS) Log() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.log.Bytes()), nil
}

func (p *KMS) logf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(&p.log, time.Now().Format(time.RFC3339)+" "+format+"\n", args...)
}

// crash has every connection break, as the end of a process does whose supervisor
// starts the next at once.
func (p *KMS) crash() {
	p.life.Lock()
	defer p.life.Unlock()
	p.listener.cut()
}

// A listener knows its connections.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, conn)
	}
	return conn, err
}

func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		conn.Close()
	}
	l.open = nil
}
