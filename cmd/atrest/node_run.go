package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/node"
	"github.com/kube-atrest/atrest/operate/node/localapi"
)

// What plugins are run as, and with, unless something else is said.
const (
	defaultPlugin = "/usr/bin/atrest-kms-plugin"
	pluginMemory  = 512 << 20
	pluginFiles   = 1024
)

type nodeCommand struct {
	streams
	o          node.Options
	cluster    clusterFlags
	apiservers []string
	identity   string
	program    string
	memory     uint64
	files      uint64
	pass       []string
	manifests  string
	kubelet    string
	tried      string
}

func (c *nodeCommand) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.o.Bundles, "bundles", "", "folder that the bundle comes in; without it the last good one stays")
	flags.StringVar(&c.tried, "tried", "", "file with what \"atrest bundle try -o json\" found: no other bundle is taken, and no other key_ids")
	flags.StringVar(&c.o.ConfigFile, "config", "", "file that the apiserver has as --encryption-provider-config (required)")
	flags.StringVar(&c.o.State, "state", "/var/lib/atrest/node", "folder on the node's own disk, for the last good bundle")
	flags.StringVar(&c.o.Run, "run", defaultRun, "folder in memory, for credentials and what is told of the plugins")
	flags.StringVar(&c.o.Sockets, "sockets", "", "folder of the sockets on this machine; default the one in the bundle's configuration")
	flags.StringVar(&c.program, "plugin", defaultPlugin, "program of plugins whose settings name none")
	flags.StringSliceVar(&c.apiservers, "apiserver", nil, "each apiserver of this node that reads the file, by its loopback address, as https://127.0.0.1:6443, by commas")
	flags.StringVar(&c.identity, "apiserver-id-hash", "", "what they tell as apiserver_id_hash; default as of a kube-apiserver on a host of this name")
	c.cluster.add(flags)
	flags.DurationVar(&c.o.Grace, "grace", 10*time.Minute, "how long an apiserver may go on with a former file after it took the next one")
	flags.DurationVar(&c.o.Patience, "patience", 30*time.Second, "how long a plugin may take to end before it is killed")
	flags.DurationVar(&c.o.Timeout, "timeout", 10*time.Second, "within which a plugin has to answer")
	flags.DurationVar(&c.o.AskEvery, "interval", 10*time.Second, "time between two questions to a plugin or an apiserver")
	flags.DurationVar(&c.o.Silence, "silence", 5*time.Minute, "how long a plugin that served may answer nothing while it runs, before another one takes its place; 0 is for ever")
	flags.BoolVar(&c.o.Drain, "drain", false, "end the plugins when this ends: their apiserver can then do without")
	flags.Uint64Var(&c.memory, "plugin-memory", pluginMemory, "most memory of one plugin, in bytes; 0 is no limit")
	flags.Uint64Var(&c.files, "plugin-files", pluginFiles, "most files and sockets that one plugin may have open; 0 is no limit")
	flags.StringVar(&c.manifests, "manifests", "", "run plugins as static pods, by manifests in this folder: the kubelet's staticPodPath")
	flags.StringVar(&c.kubelet, "kubelet-root", "/var/lib/kubelet", "with --manifests, the folder that the kubelet has as --root-dir")
	flags.StringSliceVar(&c.pass, "pass-env", nil, "names of environment variables that plugins are given too, by commas: none with a credential")
}

func (c *nodeCommand) check() error {
	paths := map[string]string{"config": c.o.ConfigFile, "state": c.o.State, "run": c.o.Run, "plugin": c.program}
	if c.manifests != "" {
		paths["manifests"], paths["kubelet-root"] = c.manifests, c.kubelet
	}
	for flag, path := range paths {
		if !filepath.IsAbs(path) {
			return usagef("flag --%s is %q: write a path from / on", flag, path)
		}
	}
	for flag, d := range map[string]time.Duration{"patience": c.o.Patience, "timeout": c.o.Timeout, "interval": c.o.AskEvery} {
		if d <= 0 {
			return usagef("flag --%s is %s: it has to be over 0", flag, d)
		}
	}
	if c.manifests != "" && len(c.pass) > 0 {
		return usagef("flag --pass-env is for processes, and with --manifests plugins are pods: leave one away")
	}
	for flag, d := range map[string]time.Duration{"grace": c.o.Grace, "silence": c.o.Silence} {
		if d < 0 {
			return usagef("flag --%s is %s: it is not below 0", flag, d)
		}
	}
	return nil
}

func (c *nodeCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.askers(); err != nil {
		return err
	}
	if c.tried != "" {
		c.o.Expected = c.expected(c.tried)
	}
	keepPrivate()
	c.o.Runner = runnerOf(c)
	c.o.Clock, c.o.Every = clock.RealClock{}, time.Second
	var mu sync.Mutex
	c.o.Log = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(c.err, "%s %s\n", now(), printable(line))
	}
	n, err := node.New(c.o)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		err := node.Serve(serving, node.Socket(c.o.Run), n.Report)
		if err != nil { // the plugins are needed all the same
			c.o.Log("problem: atrest node status has no answer until this is started anew: " + err.Error())
		}
		served <- err
	}()
	err = n.Run(ctx)
	stop()
	return errors.Join(err, <-served)
}

// askers are the apiservers of this node.
func (c *nodeCommand) askers() error {
	if len(c.apiservers) == 0 {
		c.warn("no --apiserver is named: a plugin whose keyID no bundle has any more stays, as nobody tells that it is not needed")
		return nil
	}
	if c.identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of this host: %w: say --apiserver-id-hash", err)
		}
		c.identity = localapi.IdentityOf(host)
	}
	user, err := c.cluster.user()
	if err != nil {
		return err
	}
	for _, address := range c.apiservers {
		asker, err := localapi.New(address, c.identity, user, clock.RealClock{})
		if err != nil {
			return usagef("flag --apiserver: %w", err)
		}
		c.o.Apiservers = append(c.o.Apiservers, asker)
	}
	return nil
}

// environment is all that plugins have of it.
func (c *nodeCommand) environment() []string {
	all := []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	for _, name := range c.pass {
		if value, ok := os.LookupEnv(name); ok {
			all = append(all, name+"="+value)
		}
	}
	return all
}
