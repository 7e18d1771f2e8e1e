package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/providers"
)

// TestMain has more scripts run at once than there are processors, as most of them wait most
// of the time; -parallel says otherwise.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		log.Fatal(err)
	}
	if filepath.Base(os.Args[0]) == "exe" { // as which a node starts what becomes a plugin
		os.Args[0] = "atrest"
		main()
	}
	testscript.Main(m, map[string]func(){"atrest": main, "until": until, "kms": kms})
}

// until PATTERN atrest ARGS... is the command, interrupted by the line, on stdout or
// stderr, that matches: before anything that comes after that line. Its exit code is the
// command's, or 99 if no line did.
func until() {
	is := regexp.MustCompile(os.Args[1])
	if os.Args[2] != "atrest" {
		log.Fatalf("until is for atrest, not for %s", os.Args[2])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	interrupt := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			log.Fatal(err)
		}
		<-ctx.Done()
	}
	code := run(ctx, os.Args[3:], streams{
		in:  os.Stdin,
		out: &matching{to: os.Stdout, is: is, found: interrupt},
		err: &matching{to: os.Stderr, is: is, found: interrupt},
	})
	if ctx.Err() == nil {
		code = 99
	}
	os.Exit(code)
}

// matching writes on, and tells when a line matches.
type matching struct {
	to    io.Writer
	is    *regexp.Regexp
	found func()
	rest  []byte // of a line that has not ended
}

func (m *matching) Write(p []byte) (int, error) {
	m.rest = append(m.rest, p...)
	n, err := m.to.Write(p)
	for {
		line, rest, ended := bytes.Cut(m.rest, []byte("\n"))
		if !ended {
			return n, err
		}
		if m.rest = rest; m.is.Match(line) {
			m.found()
		}
	}
}

// Every command, and every error that it can end with, is in one of the scripts.
func TestScripts(t *testing.T) { testscript.Run(t, scriptsIn("testdata/script")) }

func scriptsIn(folder string) testscript.Params {
	return testscript.Params{
		Dir: folder,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GODEBUG", os.Getenv("GODEBUG")) // fips140=only is for the command too
			env.Setenv("DEKSOURCE", string(dekSource))
			env.Values[worldKey] = &world{t: env.T().(testing.TB), plugins: map[string]*faultplugin.Plugin{}, apis: map[string]*apiserver{}, listed: map[string]bool{}}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"plugin": plugin, "etcd": etcdCommand, "render": render, "seal": seal, "nokeys": nokeys,
			"fails": fails, "newline": newline, "api": api, "waits": waits, "pack": pack, "events": events,
			"program": program, "settled": settled, "port": port,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	}
}

// dekSource is that of what is sealed here, by the mode in which this process can write.
var dekSource = map[envelope.WriteMode]audit.DEKSource{envelope.Counter: audit.DEK, envelope.Seed: audit.Seed}[envelope.WriteModes()[0]]

// world is what surrounds one script.
type world struct {
	t       testing.TB // of the script itself: what fails there ends no other
	plugins map[string]*faultplugin.Plugin
	etcd    *etcdtest.Server
	// override has what is below overridden, as with --etcd-servers-overrides, if it is
	// there.
	override   *etcdtest.Server
	overridden string
	apis       map[string]*apiserver

	mu     sync.Mutex
	broken bool            // no watch cache is ready: something was deleted that was not decrypted
	listed map[string]bool // the IDs of the apiservers that have a Lease
	// endpoints are those of the Service kubernetes, as EndpointSlices.
	endpoints []any
}

const worldKey = "world"

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey).(*world) }

// plugin NAME start|away|key_id ID|sealed|heals|forgets ID|denies: a KMS v2 plugin, whose
// endpoint is in $NAME.
func plugin(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	name, verb := args[0], args[1]
	p, ok := w.plugins[name]
	if !ok {
		p = faultplugin.New(w.t)
		w.plugins[name] = p
		ts.Setenv(name, p.Endpoint())
	}
	change := map[string]func(*faultplugin.Behaviour){
		"key_id":  func(b *faultplugin.Behaviour) { b.KeyID = args[2] },
		"sealed":  func(b *faultplugin.Behaviour) { b.Healthz = "sealed" },
		"heals":   func(b *faultplugin.Behaviour) { *b = faultplugin.Healthy(b.KeyID) },
		"forgets": func(b *faultplugin.Behaviour) { b.Forgotten = append(b.Forgotten, args[2]) },
		"denies": func(b *faultplugin.Behaviour) {
			b.EncryptErr = status.Error(codes.PermissionDenied, "encrypt is not allowed")
		},
		"disagrees":   func(b *faultplugin.Behaviour) { b.EncryptKeyID = "other" },
		"foreign":     func(b *faultplugin.Behaviour) { b.Foreign = append(b.Foreign, args[2]) },
		"destroyed":   func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.Unknown, "key version is destroyed") },
		"unavailable": func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.Unavailable, "the KMS is away") },
	}[verb]
	switch {
	case verb == "start":
		p.Serve()
	case verb == "away":
		p.Kill()
	case change != nil:
		p.Set(change)
	default:
		ts.Fatalf("plugin cannot %s", verb)
	}
}

// storeOf is the store that has an etcd key.
func (w *world) storeOf(key string) *etcdtest.Server {
	if w.override != nil && strings.HasPrefix(key, w.overridden) {
		return w.override
	}
	return w.etcd
}

// etcdCommand is etcd start|other|override|put|seal|put-main|seal-main|delete|compacts|refuses|users|save: a store in
// memory, whose endpoint is in $ETCD.
func etcdCommand(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	switch args[0] {
	case "start":
		w.etcd = etcdtest.Start(w.t)
		ts.Setenv("ETCD", w.etcd.Endpoint())
	case "other": // another one, with a Secret, whose endpoint is in $OTHER
		other := etcdtest.Start(w.t)
		other.Store("/registry/secrets/default/other", []byte(`{"kind":"Secret"}`))
		ts.Setenv("OTHER", other.Endpoint())
	case "override": // one of its own for Secrets or for PREFIX, whose endpoint is in $OVERRIDE
		w.override, w.overridden = etcdtest.Start(w.t), "/registry/secrets/"
		if len(args) > 1 {
			w.overridden = args[1]
		}
		ts.Setenv("OVERRIDE", w.override.Endpoint())
	case "put": // KEY VALUE [TIMES]
		key, value := unquote(ts, args[1]), unquote(ts, args[2])
		if len(args) == 3 {
			w.etcd.Store(key, []byte(value))
			return
		}
		times, err := strconv.Atoi(args[3])
		ts.Check(err)
		for i := range times {
			w.etcd.Store(fmt.Sprintf("%s-%03d", key, i), []byte(value))
		}
	case "seal": // CONFIG RESOURCE KEY PLAINTEXT
		w.storeOf(args[3]).Store(args[3], sealed(ts, args[1], args[2], args[3], args[4]))
	case "put-main": // KEY VALUE, whatever has the override
		w.etcd.Store(args[1], []byte(args[2]))
	case "seal-main": // the same, whatever has the override
		w.etcd.Store(args[3], sealed(ts, args[1], args[2], args[3], args[4]))
	case "delete":
		w.etcd.Delete(args[1])
	case "compacts": // as soon as the first page was read
		w.etcd.Before(func(r *pb.RangeRequest) error {
			if r.Revision > 0 && strings.HasSuffix(string(r.Key), "\x00") {
				return rpctypes.ErrGRPCCompacted
			}
			return nil
		})
	case "refuses":
		w.etcd.Before(func(r *pb.RangeRequest) error {
			if r.Serializable { // it is an apiserver
				return nil
			}
			return rpctypes.ErrGRPCPermissionDenied
		})
	case "leaves": // NAME KEY: when the objects are being read, the apiserver writes KEY and shuts down in good order
		var once sync.Once
		w.etcd.Before(func(r *pb.RangeRequest) error {
			if !r.Serializable && r.Revision > 0 {
				once.Do(func() {
					a := w.apis[args[1]]
					require.NoError(w.t, a.writes(args[2]))
					w.list(a.id, false) // kube-apiserver v1.36 deletes its Lease then
				})
			}
			return nil
		})
	case "users": // NAME PASSWORD: who calls has to be that user
		w.etcd.OnlyFor(args[1], args[2])
	case "save":
		w.etcd.Save(w.t, ts.MkAbs(args[1]))
	default:
		ts.Fatalf("etcd cannot %s", args[0])
	}
}

// unquote is a word of a script with the escapes of Go.
func unquote(ts *testscript.TestScript, word string) string {
	s, err := strconv.Unquote("\"" + strings.ReplaceAll(word, "\"", "\\\"") + "\"")
	ts.Check(err)
	return s
}

// fails CODE COMMAND... is exec of a command that ends with an exit code.
func fails(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || fmt.Sprint(exit.ExitCode()) != args[0] {
		ts.Fatalf("want exit code %s, got %v", args[0], err)
	}
}

// waits FILE returns once the file is there.
func waits(ts *testscript.TestScript, _ bool, args []string) {
	require.Eventually(worldOf(ts).t, func() bool {
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// program NAME has the path of a program in $NAME_PATH, and its digest in $NAME_DIGEST.
func program(ts *testscript.TestScript, _ bool, args []string) {
	path, err := exec.LookPath(args[0])
	for _, folder := range filepath.SplitList(ts.Getenv("PATH")) {
		if at := filepath.Join(folder, args[0]); err != nil {
			if _, err = os.Stat(at); err == nil {
				path = at
			}
		}
	}
	ts.Check(err)
	content, err := os.ReadFile(path)
	ts.Check(err)
	ts.Setenv(args[0]+"_PATH", path)
	ts.Setenv(args[0]+"_DIGEST", fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
}

// port has a TCP port that nobody has in $PORT.
func port(ts *testscript.TestScript, _ bool, _ []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, number, err := net.SplitHostPort(listener.Addr().String())
	ts.Check(errors.Join(err, listener.Close()))
	ts.Setenv("PORT", number)
}

// settled COMMAND... returns once the command ends with exit code 0.
func settled(ts *testscript.TestScript, _ bool, args []string) {
	require.Eventually(worldOf(ts).t, func() bool { return ts.Exec(args[0], args[1:]...) == nil }, time.Minute, 50*time.Millisecond)
}

// newline FROM TO copies a file and puts a newline behind it.
func newline(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(ts.ReadFile(args[0])+"\n"), 0o600))
}

// render FILE... puts the environment into files.
func render(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(os.Expand(ts.ReadFile(name), ts.Getenv)), 0o600))
	}
}

// seal CONFIG RESOURCE KEY PLAINTEXT FILE writes a value as an apiserver stores it.
func seal(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[4]), sealed(ts, args[0], args[1], args[2], args[3]), 0o600))
}

func sealed(ts *testscript.TestScript, file, resource, key, plaintext string) []byte {
	w := worldOf(ts)
	c, err := config.Parse([]byte(ts.ReadFile(file)), config.Options{KMSv1: true})
	ts.Check(err)
	transformers, err := providers.Build(c, providers.Options{})
	ts.Check(err)
	defer transformers.Close()
	transformers.Commit(func() {})
	ts.Check(transformers.Prepare(w.t.Context()))
	transformer := transformers.TransformerForResource(schema.ParseGroupResource(resource))
	stored, err := transformer.TransformToStorage(w.t.Context(), []byte(plaintext), value.DefaultContext(key))
	ts.Check(err)
	return stored
}

// The keys of all configurations in the scripts, raw.
var keys = []string{"0123456789-the-first-key-8901234", "0123456789-the-other-key-8901234", "0123456789-16-by"}

// nokeys fails if the last command printed a key or a DEK, in any form.
func nokeys(ts *testscript.TestScript, _ bool, _ []string) {
	w := worldOf(ts)
	all := ts.ReadFile("stdout") + ts.ReadFile("stderr")
	secrets := keys
	for _, p := range w.plugins {
		for _, s := range p.Secrets() {
			secrets = append(secrets, string(s))
		}
	}
	for _, secret := range secrets {
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), base64Of(secret)} {
			require.NotContains(w.t, all, form)
		}
	}
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
