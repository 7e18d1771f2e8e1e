package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/node"
	"github.com/kube-atrest/atrest/operate/node/localapi"
)

// machine is a node: "atrest node", the plugins that it runs, and the apiserver that they
// are for.
type machine struct {
	t       *testing.T
	name    string
	folder  string // of all its files, with a short name
	cluster *local.Cluster
	etcd    interface{ Endpoint() string }
	node    *harness.Process
	api     *harness.Server
}

func newMachine(t *testing.T, name string, etcd interface{ Endpoint() string }) *machine {
	t.Helper()
	m := &machine{t: t, name: name, folder: harness.SocketDir(t), cluster: harness.Prepare(t), etcd: etcd}
	require.NoError(t, os.Mkdir(m.sockets(), 0o700))
	t.Cleanup(m.killPlugins) // when the node has ended, which would start them anew
	return m
}

func (m *machine) in(name string) string { return filepath.Join(m.folder, name) }
func (m *machine) bundles() string       { return m.in("bundle") }
func (m *machine) run() string           { return m.in("run") }
func (m *machine) sockets() string       { return m.in("kms") }
func (m *machine) config() string        { return m.in("encryption.yaml") }

// startNode runs "atrest node" as a service of the machine would, but that it looks more often.
func (m *machine) startNode() {
	m.t.Helper()
	m.node = harness.RunFile(m.t, harness.Atrest(m.t), "node", "--bundles", m.bundles(), "--config", m.config(),
		"--state", m.in("state"), "--run", m.run(), "--plugin", harness.KMSPlugin(m.t),
		"--apiserver", m.cluster.Config().Host, "--kubeconfig", m.cluster.Kubeconfig(), "--apiserver-id-hash", localapi.IdentityOf(m.name),
		"--interval", "500ms", "--timeout", "2s", "--grace", "1s", "--patience", "5s")
}

// startAPI runs the apiserver, which needs the configuration file to be there.
func (m *machine) startAPI() {
	m.t.Helper()
	m.api = harness.Launch(m.t, harness.Spec{Program: attentive, Host: m.name, Etcd: m.etcd, Cluster: m.cluster,
		Flags: []string{"--encryption-provider-config=" + m.config(), "--encryption-provider-config-automatic-reload"}})
}

// report is what the node tells of itself, nil if it does not.
func (m *machine) report() *node.Report {
	r, err := node.ReadReport(m.t.Context(), node.Socket(m.run()))
	if err != nil {
		return nil
	}
	return r
}

// status is what the apiserver tells of its encryption, nil if it does not.
func (m *machine) status() *healthz.Status {
	code, text, err := m.api.Try(healthz.Path)
	var s healthz.Status
	if err != nil || code != http.StatusOK || json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	return &s
}

// ready reports whether the apiserver can be asked.
func (m *machine) ready() bool {
	code, _, err := m.api.Try("/readyz")
	return err == nil && code == http.StatusOK
}

// instance is a plugin that is on record.
type instance struct {
	node.Spec
	pid int
}

// instances are those of all keyIDs, whether they run or not.
func (m *machine) instances() (all []instance) {
	m.t.Helper()
	records, err := filepath.Glob(filepath.Join(m.run(), "instances", "*", "instance.json"))
	require.NoError(m.t, err)
	for _, path := range records {
		var i struct{ Spec node.Spec }
		var p struct{ Life struct{ PID int } }
		if readJSON(path, &i) == nil && readJSON(filepath.Join(filepath.Dir(path), "process.json"), &p) == nil {
			all = append(all, instance{i.Spec, p.Life.PID})
		} // or else it is just being made or removed
	}
	return all
}

func readJSON(path string, to any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// plugin is the instance that an apiserver reaches under a keyID.
func (m *machine) plugin(keyID bundle.KeyID) (i instance, ok bool) {
	m.t.Helper()
	target, err := os.Readlink(filepath.Join(m.sockets(), keyID.Socket()))
	if err != nil {
		return i, false
	}
	for _, i := range m.instances() {
		if filepath.Base(i.Socket) == target {
			return i, true
		}
	}
	return i, false
}

// pids are the processes of the plugins that apiservers reach.
func (m *machine) pids() map[bundle.KeyID]int {
	m.t.Helper()
	all := map[bundle.KeyID]int{}
	for _, i := range m.instances() {
		keyID, err := bundle.ParseKeyID(i.KeyID)
		require.NoError(m.t, err)
		if reached, ok := m.plugin(keyID); ok && reached.Instance == i.Instance {
			all[keyID] = i.pid
		}
	}
	return all
}

// kill ends an instance as kill -9 does, if it is proven to be the one on record.
func (m *machine) kill(i instance) {
	m.t.Helper()
	require.NoError(m.t, (&node.Processes{}).Stop(i.Spec, true))
}

// lives reports whether the process of an instance runs.
func (m *machine) lives(i instance) bool {
	m.t.Helper()
	_, err := os.Stat(i.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return false // whose record goes after the process
	}
	runs, err := (&node.Processes{}).Runs(i.Spec)
	return err != nil || runs
}

// killPlugins ends all that is on record.
func (m *machine) killPlugins() {
	for _, i := range m.instances() {
		m.kill(i)
		for m.lives(i) {
			time.Sleep(pause)
		}
	}
}

// told is what the node tells, for a test that fails: then its context may have ended.
func (m *machine) told() string {
	r, err := node.ReadReport(context.WithoutCancel(m.t.Context()), node.Socket(m.run()))
	if err != nil {
		return m.name + ": " + err.Error()
	}
	text, _ := json.MarshalIndent(r, "", " ") // which it was read from
	return m.name + ": " + string(text)
}
