package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterFlags say how apiservers are reached: by the contexts of a kubeconfig.
type clusterFlags struct{ kubeconfig, context, serverName string }

func (f *clusterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how the apiserver is reached (default $KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig to use; default: its current one")
	flags.StringVar(&f.serverName, "tls-server-name", "", "name that the certificates of the apiservers are for which are given by their addresses")
}

// user is who asks the apiservers that are given by their addresses: that of --context.
func (f *clusterFlags) user() (*rest.Config, error) {
	config, err := f.config("")
	if err == nil && f.serverName != "" {
		config.ServerName = f.serverName
	}
	return config, err
}

// has reports whether the kubeconfig has a context.
func (f *clusterFlags) has(context string) bool {
	_, err := f.config(context)
	return err == nil
}

// config is how the apiserver of a context is reached, "" for that of --context.
// It is found as kubectl finds it. No request is made.
func (f *clusterFlags) config(context string) (*rest.Config, error) {
	if context == "" {
		context = f.context
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.WarnIfAllMissing = false
	loaded, err := rules.Load()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("kubeconfig: %w: name one with --kubeconfig", err)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w: mend the file, or name another with --kubeconfig", err)
	case context != "" && loaded.Contexts[context] == nil:
		return nil, fmt.Errorf("kubeconfig has no context %q: %s", context, contextsOf(loaded))
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && len(loaded.Contexts) == 0:
		return nil, errors.New("no kubeconfig says where the apiserver is: name one with --kubeconfig, or with KUBECONFIG")
	case clientcmd.IsEmptyConfig(err) && cmp.Or(context, loaded.CurrentContext) == "":
		return nil, fmt.Errorf("kubeconfig has no current context: name one with --context: %s", contextsOf(loaded))
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("kubeconfig has no server for the context %q: mend the file, or name another context", cmp.Or(context, loaded.CurrentContext))
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w: mend the file, or name another with --kubeconfig", err)
	}
	return rest.AddUserAgent(config, "atrest"), nil
}

func contextsOf(c *clientcmdapi.Config) string {
	var names []string
	for name := range c.Contexts {
		names = append(names, fmt.Sprintf("%q", name))
	}
	if names == nil {
		return "it has none"
	}
	slices.Sort(names)
	return "it has " + strings.Join(names, ", ")
}
