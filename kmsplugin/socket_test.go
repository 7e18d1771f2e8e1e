package kmsplugin_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

var well = answering(kmsplugin.Sealed{Ciphertext: []byte("wrapped"), KeyID: "key-1"}, []byte("dek"), nil)

func requireServes(t *testing.T, endpoint string) {
	t.Helper()
	answer, err := plugintest.Dial(t, endpoint).Status(t.Context(), &kmsapi.StatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "key-1", answer.KeyId)
}

func pathOf(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// leaveDeadSocket leaves what a killed server leaves: a socket file that
// nobody listens on.
func leaveDeadSocket(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	require.FileExists(t, path)
}

func TestOnlyTheOwnerMayConnect(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	endpoint := plugintest.Endpoint(t)
	plugintest.Serve(t, endpoint, well)

	info, err := os.Stat(pathOf(endpoint))
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode())
}

func TestAStoppedServerLeavesNothingBehind(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	stop := plugintest.Serve(t, endpoint, well)
	requireServes(t, endpoint)
	stop()

	left, err := os.ReadDir(filepath.Dir(pathOf(endpoint)))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestADeadSocketFileIsReplaced(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	leaveDeadSocket(t, pathOf(endpoint))
	require.NoError(t, os.WriteFile(pathOf(endpoint)+".lock", nil, 0o600), "a crash leaves this too")

	plugintest.Serve(t, endpoint, well)
	requireServes(t, endpoint)
}

func TestALiveSocketIsRespected(t *testing.T) {
	t.Run("of this kit", func(t *testing.T) {
		endpoint := plugintest.Endpoint(t)
		plugintest.Serve(t, endpoint, well)

		_, err := kmsplugin.Listen(t.Context(), endpoint, well)
		require.ErrorIs(t, err, kmsplugin.ErrSocketInUse)
		require.ErrorContains(t, err, "stop it or choose another path")
		requireServes(t, endpoint)
	})
	t.Run("of any other program", func(t *testing.T) {
		endpoint := plugintest.Endpoint(t)
		listener, err := net.Listen("unix", pathOf(endpoint))
		require.NoError(t, err)
		defer listener.Close()

		_, err = kmsplugin.Listen(t.Context(), endpoint, well)
		require.ErrorIs(t, err, kmsplugin.ErrSocketInUse)
		require.FileExists(t, pathOf(endpoint))
		require.NoFileExists(t, pathOf(endpoint)+".lock")
	})
	t.Run("too busy to accept", func(t *testing.T) {
		endpoint := plugintest.Endpoint(t)
		fillBacklog(t, pathOf(endpoint))

		_, err := kmsplugin.Listen(t.Context(), endpoint, well)
		require.ErrorIs(t, err, kmsplugin.ErrSocketInUse)
		require.FileExists(t, pathOf(endpoint))
	})
	t.Run("of another kind", func(t *testing.T) {
		endpoint := plugintest.Endpoint(t)
		datagram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: pathOf(endpoint), Net: "unixgram"})
		require.NoError(t, err)
		defer datagram.Close()

		_, err = kmsplugin.Listen(t.Context(), endpoint, well)
		require.ErrorContains(t, err, "cannot tell whether")
		require.FileExists(t, pathOf(endpoint))
	})
}

// fillBacklog listens on path, accepts nothing and takes every place in the
// queue.
func fillBacklog(t *testing.T, path string) {
	t.Helper()
	listening, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(listening) })
	require.NoError(t, syscall.Bind(listening, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Listen(listening, 0))
	for range 10 {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			return
		}
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the queue does not fill")
}

func TestWhatIsNotASocketStays(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"file":            func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"empty folder":    func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":            func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link to nowhere": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := plugintest.Endpoint(t)
			require.NoError(t, create(pathOf(endpoint)))
			before, err := os.Lstat(pathOf(endpoint))
			require.NoError(t, err)

			_, err = kmsplugin.Listen(t.Context(), endpoint, well)
			require.ErrorContains(t, err, "is not a socket")
			require.ErrorContains(t, err, "move it away or choose another path")
			after, err := os.Lstat(pathOf(endpoint))
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after))
		})
	}
}

func TestALinkToADeadSocketIsNotFollowed(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	target := filepath.Join(plugintest.Folder(t), "target.sock")
	leaveDeadSocket(t, target)
	require.NoError(t, os.Symlink(target, pathOf(endpoint)))

	_, err := kmsplugin.Listen(t.Context(), endpoint, well)
	require.ErrorContains(t, err, "is not a socket")
	require.FileExists(t, target)
}

func TestTheFolderMustExist(t *testing.T) {
	endpoint := "unix://" + filepath.Join(plugintest.Folder(t), "missing", "kms.sock")
	_, err := kmsplugin.Listen(t.Context(), endpoint, well)
	require.ErrorContains(t, err, "does not exist: create it first, mkdir -p")

	file := filepath.Join(plugintest.Folder(t), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = kmsplugin.Listen(t.Context(), "unix://"+file+"/kms.sock", well)
	require.ErrorContains(t, err, "is not a folder")
}

// Who may write to the folder may put a socket in the place of this one, which an apiserver
// would give its DEKs to.
func TestOthersMayNotWriteToTheFolder(t *testing.T) {
	for mode, refused := range map[os.FileMode]bool{
		0o700: false, 0o755: false, 0o770: true, 0o707: true, 0o777: true, 0o777 | os.ModeSticky: false, 0o770 | os.ModeSticky: false,
	} {
		endpoint := plugintest.Endpoint(t)
		folder := filepath.Dir(pathOf(endpoint))
		require.NoError(t, os.Chmod(folder, mode))
		server, err := kmsplugin.Listen(t.Context(), endpoint, well)
		if !refused {
			require.NoError(t, err, mode)
			ended, end := context.WithCancel(t.Context())
			end()
			require.NoError(t, server.Serve(ended))
			continue
		}
		require.ErrorContains(t, err, "chmod go-w "+folder, mode)
		require.NoFileExists(t, pathOf(endpoint))
		require.NoFileExists(t, pathOf(endpoint)+".lock")
	}
}

func TestTheFolderIsOfRootOrOfThisUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	endpoint := plugintest.Endpoint(t)
	folder := filepath.Dir(pathOf(endpoint))
	require.NoError(t, os.Chown(folder, 12345, -1))
	_, err := kmsplugin.Listen(t.Context(), endpoint, well)
	require.ErrorContains(t, err, "folder "+folder+" belongs to uid 12345")
	require.ErrorContains(t, err, "use a folder of uid 0 or of root")
	require.NoFileExists(t, pathOf(endpoint))
}

// Who may rename a folder on the way to the socket may put another socket in its place.
func TestNobodyElseMayMoveAFolderAboveTheSocket(t *testing.T) {
	top := plugintest.Folder(t)
	above, own := filepath.Join(top, "above"), filepath.Join(top, "above", "own")
	require.NoError(t, os.MkdirAll(own, 0o700))
	require.NoError(t, os.Symlink(own, filepath.Join(top, "link")))
	for _, folder := range []string{own, filepath.Join(top, "link")} {
		listen := func(mode fs.FileMode) error {
			require.NoError(t, os.Chmod(above, mode))
			server, err := kmsplugin.Listen(t.Context(), "unix://"+filepath.Join(folder, "kms.sock"), well)
			if err == nil {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				require.NoError(t, server.Serve(ctx))
			}
			return err
		}
		for _, open := range []fs.FileMode{0o777, 0o707, 0o770} {
			err := listen(open)
			require.ErrorContains(t, err, "others may write to folder "+above+" (d")
			require.ErrorContains(t, err, "chmod go-w "+above)
		}
		require.NoError(t, listen(0o755))
		require.NoError(t, listen(fs.ModeSticky|0o777), "nobody may rename what is another's there")
	}
}

// Without the lock nothing would keep two servers from one path.
func TestNoSocketIsBoundWithoutItsLock(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	require.NoError(t, os.Mkdir(pathOf(endpoint)+".lock", 0o700))
	server, err := kmsplugin.Listen(t.Context(), endpoint, well)
	require.ErrorContains(t, err, "kmsplugin: endpoint")
	require.ErrorContains(t, err, pathOf(endpoint)+".lock")
	require.NotErrorIs(t, err, kmsplugin.ErrSocketInUse)
	require.Nil(t, server)
	require.NoFileExists(t, pathOf(endpoint))
}

func TestOfManyServersStartingAtOnceOneWins(t *testing.T) {
	for range 20 {
		endpoint := plugintest.Endpoint(t)
		leaveDeadSocket(t, pathOf(endpoint))
		const starters = 8
		servers, errs := make([]*kmsplugin.Server, starters), make([]error, starters)
		var all sync.WaitGroup
		gate := make(chan struct{})
		for i := range starters {
			all.Go(func() {
				<-gate
				servers[i], errs[i] = kmsplugin.Listen(t.Context(), endpoint, well)
			})
		}
		close(gate)
		all.Wait()

		var winner *kmsplugin.Server
		for i := range starters {
			if errs[i] == nil {
				require.Nil(t, winner, "two servers on one path")
				winner = servers[i]
				continue
			}
			require.ErrorIs(t, errs[i], kmsplugin.ErrSocketInUse)
		}
		require.NotNil(t, winner)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- winner.Serve(ctx) }()
		requireServes(t, endpoint)
		stop()
		require.NoError(t, <-ended)
	}
}

func TestASocketThatTookOurPlaceIsNotRemoved(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	stop := plugintest.Serve(t, endpoint, well)
	require.NoError(t, os.Remove(pathOf(endpoint)))
	leaveDeadSocket(t, pathOf(endpoint))

	stop()
	require.FileExists(t, pathOf(endpoint))
}

func TestAPluginComesBackOnItsSocket(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	for range 3 {
		stop := plugintest.Serve(t, endpoint, well)
		requireServes(t, endpoint)
		stop()
		_, err := plugintest.Dial(t, endpoint).Status(t.Context(), &kmsapi.StatusRequest{})
		require.Error(t, err)
	}
}

func TestEndpoints(t *testing.T) {
	folder := plugintest.Folder(t)
	for name, test := range map[string]struct{ endpoint, problem string }{
		"empty":         {"", `scheme is "", not unix`},
		"a bare path":   {folder + "/kms.sock", `scheme is "", not unix`},
		"tcp":           {"tcp://127.0.0.1:80", `scheme is "tcp", not unix`},
		"two slashes":   {"unix://tmp/x.sock", "write three, unix:///tmp/x.sock"},
		"abstract, two": {"unix://@atrest", "write three, unix:///@atrest"},
		"relative":      {"unix:x.sock", "path is not absolute"},
		"no path":       {"unix://", "path is not absolute"},
		"root":          {"unix:///", "no socket is named"},
		"abstract":      {"unix:///@atrest", "it is an abstract socket"},
		"query":         {"unix://" + folder + "/kms.sock?mode=0600", "a query or a fragment"},
		"empty query":   {"unix://" + folder + "/kms.sock?", "a query or a fragment"},
		"fragment":      {"unix://" + folder + "/kms.sock#1", "a query or a fragment"},
		"NUL":           {"unix://" + folder + "/kms%00.sock", "NUL"},
		"bad escape":    {"unix://" + folder + "/kms%zz.sock", "invalid URL escape"},
		"too long":      {"unix://" + folder + "/" + strings.Repeat("x", 120), "choose a shorter folder"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kmsplugin.Listen(t.Context(), test.endpoint, well)
			require.ErrorContains(t, err, "kmsplugin: endpoint")
			require.ErrorContains(t, err, test.problem)
		})
	}
}

func TestAnEscapedPathIsTheFileItNames(t *testing.T) {
	for escaped, test := range map[string]struct {
		name   string
		refuse string // what kube-apiserver's own client says
	}{
		"a.sock":       {name: "a.sock"},
		"a%3Fb.sock":   {name: "a?b.sock"},
		"a%23b.sock":   {name: "a#b.sock"},
		"a%3fb.sock":   {name: "a?b.sock"},
		"a%20b.sock":   {name: "a b.sock"},
		"a b.sock":     {name: "a b.sock"},
		"a%2541b.sock": {name: "a%41b.sock"},
		"%C3%A4.sock":  {name: "ä.sock"},
		"a+b&c=d.sock": {name: "a+b&c=d.sock"},
		"a%25.sock":    {name: "a%.sock", refuse: `invalid URL escape "%.s"`},
		"a%25zz.sock":  {name: "a%zz.sock", refuse: `invalid URL escape "%zz"`},
	} {
		t.Run(escaped, func(t *testing.T) {
			folder := plugintest.Folder(t)
			endpoint := "unix://" + folder + "/" + escaped
			server, err := kmsplugin.Listen(t.Context(), endpoint, well)
			require.NoError(t, err)
			require.Equal(t, endpoint, server.Endpoint())
			info, err := os.Lstat(filepath.Join(folder, test.name))
			require.NoError(t, err)
			require.Equal(t, fs.ModeSocket, info.Mode().Type())
			ended, end := context.WithCancel(t.Context())
			end()
			require.NoError(t, server.Serve(ended))
			left, err := os.ReadDir(folder)
			require.NoError(t, err)
			require.Empty(t, left)

			plugintest.Serve(t, endpoint, well)
			requireServes(t, endpoint)
			theirs, err := kmsv2.NewGRPCService(t.Context(), endpoint, "plugin", time.Minute)
			if test.refuse != "" {
				require.ErrorContains(t, err, test.refuse)
				return
			}
			require.NoError(t, err)
			answer, err := theirs.Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, "key-1", answer.KeyID)
		})
	}
}

// What is said when a name cannot be read as a URL has to name the very file.
func TestTheAdviceOnEndpointsHolds(t *testing.T) {
	escape := strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23")
	for _, name := range []string{"a?b.sock", "a#b.sock", "a%b.sock", "a%zz.sock", "?#%.sock"} {
		folder := plugintest.Folder(t)
		_, err := kmsplugin.Listen(t.Context(), "unix://"+folder+"/"+name, well)
		require.ErrorContains(t, err, "in a name write % as %25, ? as %3F and # as %23")
		endpoint := "unix://" + folder + "/" + escape.Replace(name)
		plugintest.Serve(t, endpoint, well)
		info, err := os.Lstat(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Equal(t, fs.ModeSocket, info.Mode().Type())
		requireServes(t, endpoint)
	}
}

func TestAServerNeedsAService(t *testing.T) {
	_, err := kmsplugin.Listen(t.Context(), plugintest.Endpoint(t), nil)
	require.ErrorContains(t, err, "no service")
}
