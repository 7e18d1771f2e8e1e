package main

import (
	"bufio"
	"bytes"
	"crypto/fips140"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// The command, the command as it behaves on a terminal, and kube-apiserver giving up
// inside it.
const (
	inALog      = "quickstart"
	onATerminal = "quickstart on a terminal"
	givesUp     = "kube-apiserver gives up"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]func() int{
		inALog:      func() int { return execute(newReport(os.Stdout)) },
		onATerminal: func() int { return execute(&report{out: os.Stdout, terminal: true}) },
		givesUp:     giveUp,
	}))
}

func TestEveryStepHoldsAndNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	r := start(t, inALog, "--exit")
	require.Zero(t, r.wait(t))

	output := r.output.String()
	for _, step := range script(false) {
		require.Regexp(t, "  ok  "+step.fact, output)
	}
	require.Contains(t, output, "k8s:enc:kms:v2:key-file:")
	require.Contains(t, output, "Everything held.")
	require.Equal(t, fips140.Enforced(), strings.Contains(output, "FIPS 140-3"))
	require.NotContains(t, output, "\x1b", "colours are for terminals")
	require.Empty(t, r.errors.String())
	require.Empty(t, r.leftovers(t))
}

func TestEveryStepHoldsInFIPS140OnlyMode(t *testing.T) {
	t.Parallel()
	r := startIn(t, []string{"GODEBUG=fips140=only"}, inALog, "--exit")
	require.Zero(t, r.wait(t))
	output := r.output.String()
	require.Contains(t, output, "values are written with seeds")
	require.Contains(t, output, "Everything held.")
	require.Empty(t, r.errors.String())
}

func TestASecondRunTakesUpTheDataOfTheFirst(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "state")
	first := start(t, inALog, "--data", data)
	require.Zero(t, first.wait(t))
	require.NotContains(t, first.output.String(), "earlier run")

	second := start(t, inALog, "--data", data)
	require.Zero(t, second.wait(t))
	require.Contains(t, second.output.String(), "  ok  what an earlier run wrote is readable")
	require.Regexp(t, `etcd +3 Secrets under 2 key_ids`, second.output.String())
	require.FileExists(t, filepath.Join(data, "kubeconfig"))
	require.FileExists(t, filepath.Join(data, "logs", "kube-apiserver.log"))
	require.Empty(t, append(first.leftovers(t), second.leftovers(t)...))
}

func TestOnATerminalItServesUntilCtrlC(t *testing.T) {
	t.Parallel()
	r := start(t, onATerminal)
	var kubeconfig string
	for !strings.HasPrefix(kubeconfig, "kubectl") {
		kubeconfig = r.next(t)
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.Fields(kubeconfig)[2])
	require.NoError(t, err)
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	list, err := kube.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 3)

	require.NoError(t, r.process.Signal(syscall.SIGINT))
	require.Zero(t, r.wait(t))
	require.Contains(t, r.output.String(), "\x1b[32m  ok \x1b[0m")
	require.Empty(t, r.leftovers(t))
}

func TestOnATerminalItEndsWhenAsked(t *testing.T) {
	t.Parallel()
	r := start(t, onATerminal, "--exit")
	require.Zero(t, r.wait(t))
}

func TestInterruptedItEndsWithOneAndCleansUp(t *testing.T) {
	t.Parallel()
	r := start(t, inALog)
	require.Contains(t, r.next(t), "A kube-apiserver")
	require.NoError(t, r.process.Signal(syscall.SIGINT))

	require.Equal(t, 1, r.wait(t))
	require.Contains(t, r.output.String(), "Interrupted.")
	require.Empty(t, r.leftovers(t))
}

func TestWhenTheServerGivesUpItSaysSoAndCleansUp(t *testing.T) {
	t.Parallel()
	r := start(t, givesUp)
	require.Equal(t, 1, r.wait(t))
	require.Contains(t, r.output.String(), "no way on")
	require.Empty(t, r.leftovers(t))
}

// giveUp ends as kube-apiserver does when a hook fails after it has started.
func giveUp() int {
	f, err := openFolder("")
	if err != nil {
		return 3
	}
	if _, err := captureLogs(f); err != nil {
		return 3
	}
	f.onFatal(&report{out: os.Stdout})
	klog.Fatal("no way on")
	return 0
}

func TestAPortThatIsTakenIsTheReasonItGives(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)

	r := start(t, inALog, "--port", port)
	require.Equal(t, 1, r.wait(t))
	require.Contains(t, r.output.String(), "choose another --port")
	require.Contains(t, r.output.String(), "run it with --data DIR to keep all logs")
	require.Empty(t, r.leftovers(t))
}

func TestDataInUseIsTheReasonItGives(t *testing.T) {
	t.Parallel()
	f, err := openFolder(filepath.Join(t.TempDir(), "state"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.remove()) })
	unlock, err := f.lock()
	require.NoError(t, err)
	defer unlock()

	r := start(t, inALog, "--data", f.data)
	require.Equal(t, 1, r.wait(t))
	require.Contains(t, r.output.String(), "is in use by another quickstart")
	require.Contains(t, r.output.String(), "all logs: "+f.logs())
}

func TestHelpTeaches(t *testing.T) {
	t.Parallel()
	r := start(t, inALog, "--help")
	require.Zero(t, r.wait(t))
	for _, part := range []string{"go run ./apiserver/quickstart", "--data", "--exit", "--port", "Ctrl-C"} {
		require.Contains(t, r.output.String(), part)
	}
}

func TestAnUnknownFlagIsTheReasonItGives(t *testing.T) {
	t.Parallel()
	r := start(t, inALog, "--prot", "1")
	require.Equal(t, 1, r.wait(t))
	require.Contains(t, r.errors.String(), "unknown flag: --prot")
}

// process is a quickstart that runs, with a folder of its own for what is temporary.
type process struct {
	process *os.Process
	wait    func(*testing.T) int
	lines   *bufio.Reader
	output  *bytes.Buffer
	errors  *bytes.Buffer
	temp    string
}

func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	return startIn(t, nil, program, args...)
}

// startIn starts it with more in its environment.
func startIn(t *testing.T, environment []string, program string, args ...string) *process {
	t.Helper()
	command, err := harness.Command(t.Context(), program, args...)
	require.NoError(t, err)
	r := &process{output: &bytes.Buffer{}, errors: &bytes.Buffer{}, temp: harness.SocketDir(t)}
	command.Env = append(append(command.Env, "TMPDIR="+r.temp), environment...)
	command.Stderr = r.errors
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	r.lines = bufio.NewReader(io.TeeReader(stdout, r.output))
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output:\n%s%s", r.output, r.errors)
		}
	})
	r.process = command.Process
	r.wait = func(t *testing.T) int {
		t.Helper()
		_, err := io.Copy(io.Discard, r.lines)
		require.NoError(t, err)
		_ = command.Wait() // its exit code is what tests look at
		return command.ProcessState.ExitCode()
	}
	return r
}

// next waits for a line of output.
func (r *process) next(t *testing.T) string {
	t.Helper()
	line, err := r.lines.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// leftovers are the temporary files that were not removed.
func (r *process) leftovers(t *testing.T) []os.DirEntry {
	t.Helper()
	left, err := os.ReadDir(r.temp)
	require.NoError(t, err)
	return left
}
