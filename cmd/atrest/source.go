package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
	"github.com/kube-atrest/atrest/operate/audit/snapshot"
)

// sourceFlags say where the stored objects are: etcdctl's flags, or a snapshot.
type sourceFlags struct {
	etcd              bool
	endpoints         []string
	cacert, cert, key string
	user              userFlags
	timeout           time.Duration
	snapshot          string
	prefix            string
	paths             []string
	overrides         []string

	flags *pflag.FlagSet
}

// add declares the flags; key is what the flag for the client's key is called.
func (s *sourceFlags) add(flags *pflag.FlagSet, key string) {
	s.addEtcd(flags, key)
	flags.StringVar(&s.snapshot, "snapshot", "", "read this file instead: of etcdctl snapshot save, also packed by gzip, zip or zstd, or member/snap/db of a stopped member")
}

// addEtcd declares those of etcd alone.
func (s *sourceFlags) addEtcd(flags *pflag.FlagSet, key string) {
	s.flags = flags
	flags.StringSliceVar(&s.endpoints, "endpoints", nil, "etcd's endpoints, as for etcdctl, by commas (default "+etcd.DefaultEndpoint+")")
	flags.StringSliceVar(&s.overrides, "etcd-servers-overrides", nil,
		"GROUP/RESOURCE#SERVERS, as kube-apiserver has it: resources that an etcd of their own holds, with its servers by ';'; by commas, or repeatable")
	flags.StringVar(&s.cacert, "cacert", "", "file with the CA that etcd's certificate is checked with")
	flags.StringVar(&s.cert, "cert", "", "file with the client certificate for etcd")
	flags.StringVar(&s.key, key, "", "file with the key of the client certificate")
	s.user.add(flags)
	flags.DurationVar(&s.timeout, "command-timeout", etcd.DefaultTimeout, "how long one call to etcd may take")
	s.addLayout(flags)
}

// addLayout declares those that say what is stored where.
func (s *sourceFlags) addLayout(flags *pflag.FlagSet) {
	flags.StringVar(&s.prefix, "prefix", audit.DefaultPrefix, "where the apiserver stores, its --etcd-prefix; with /kubernetes.io, which is OpenShift's, /openshift.io too")
	flags.StringArrayVar(&s.paths, "map", nil, "PATH=RESOURCE.GROUP: what is stored below PREFIX/PATH, for servers with a layout of their own; repeatable")
}

// addSwitch declares --etcd, for commands that do without etcd too.
func (s *sourceFlags) addSwitch(flags *pflag.FlagSet) {
	flags.BoolVar(&s.etcd, "etcd", false, "look into etcd; naming --endpoints does too")
}

// wanted reports whether the command is to look at stored objects.
func (s *sourceFlags) wanted() bool {
	return s.etcd || s.flags.Changed("endpoints") || len(s.overrides) > 0 || s.snapshot != ""
}

// source is a store that was opened.
type source interface {
	audit.Store
	Close()
}

// open opens the snapshot if one is named, else etcd. Mistakes in the flags are
// usage errors.
func (s *sourceFlags) open(ctx context.Context) (source, error) {
	if s.snapshot != "" {
		if s.etcd || s.flags.Changed("endpoints") || len(s.overrides) > 0 {
			return nil, usagef("flags --snapshot and --etcd, --endpoints or --etcd-servers-overrides: name one place")
		}
		if s.user.name != "" || s.user.file != "" {
			return nil, usagef("flags --snapshot and --user or --password-file: a file asks for no user")
		}
		return snapshot.Open(ctx, s.snapshot)
	}
	if len(s.overrides) > 0 {
		return s.openSeveral()
	}
	return s.dial(s.endpointList())
}

func (s *sourceFlags) dial(endpoints []string) (*etcd.Store, error) {
	user, password, err := s.user.read()
	if err != nil {
		return nil, err
	}
	return etcd.Dial(etcd.Options{
		User:      user,
		Password:  password,
		Endpoints: endpoints,
		CAFile:    orEnv(s.cacert, "ETCDCTL_CACERT"),
		CertFile:  orEnv(s.cert, "ETCDCTL_CERT"),
		KeyFile:   orEnv(s.key, "ETCDCTL_KEY"),
		Timeout:   s.timeout,
	})
}

func (s *sourceFlags) endpointList() []string {
	if len(s.endpoints) > 0 {
		return s.endpoints
	}
	if env := os.Getenv("ETCDCTL_ENDPOINTS"); env != "" {
		return strings.Split(env, ",")
	}
	return nil
}

func orEnv(flag, name string) string {
	if flag != "" {
		return flag
	}
	return os.Getenv(name)
}

// layout is where which resource is stored.
func (s *sourceFlags) layout() (audit.Layout, error) {
	told := map[string]schema.GroupResource{}
	for _, text := range s.paths {
		path, resource, err := audit.ParsePath(text)
		if err != nil {
			return audit.Layout{}, usagef("flag --map: %w", err)
		}
		told[path] = resource
	}
	return audit.NewLayout(s.prefix, told), nil
}
