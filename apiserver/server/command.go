package server

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics that kube-apiserver's command serves
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
)

const long = `The Kubernetes API server, with encryption at rest done by atrest.

Every flag means what it means for kube-apiserver. The encryption flags, under
"Etcd flags", are atrest's: one file says which resources are encrypted and with
which providers, and the same file works for kube-apiserver.`

// NewCommand returns the kube-apiserver command. It serves until ctx ends, then drains
// and returns.
//
// Feature gates, logging and metrics belong to the process, so one process runs the
// command once.
func NewCommand(ctx context.Context) *cobra.Command {
	o := NewOptions()
	sections := o.Flags()
	cmd := &cobra.Command{
		Use:          "kube-apiserver",
		Short:        "The Kubernetes API server, with encryption at rest done by atrest",
		Long:         long,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			// The server's own loopback clients would log the warnings that the server
			// itself sends.
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return o.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := o.publish(); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())
			return Run(cmd.Context(), o)
		},
	}
	cmd.SetContext(ctx)
	addFlags(cmd, sections)
	o.Flagz = flagz.NamedFlagSetsReader{FlagSets: sections}
	return cmd
}

func addFlags(cmd *cobra.Command, sections cliflag.NamedFlagSets) {
	global := sections.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range sections.FlagSets {
		cmd.Flags().AddFlagSet(section)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout()) // 0 where there is no terminal: no wrapping
	cliflag.SetUsageAndHelpFunc(cmd, sections, columns)
}

// publish sets up the process's logging and the metrics that tell its version and feature
// gates.
func (o *Options) publish() error {
	registry := o.GenericServerRunOptions.ComponentGlobalsRegistry
	gates := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(o.Logs, gates); err != nil {
		return err
	}
	if gates, ok := gates.(featuregate.MutableFeatureGate); ok {
		gates.AddMetrics()
	}
	registry.AddMetrics()
	return nil
}
