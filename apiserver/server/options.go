package server

import (
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/kube-atrest/atrest"
)

// Options are kube-apiserver's, with the encryption flags handed to atrest. Not safe for
// concurrent use.
type Options struct {
	*options.ServerRunOptions
	// Encryption is what the three encryption flags set. EncryptionProviderConfigFilepath
	// and its sister in ServerRunOptions.Etcd stay empty, which is how kube-apiserver's
	// own encryption is told to do nothing.
	Encryption *atrest.Options
}

// NewOptions returns kube-apiserver's defaults, without encryption.
func NewOptions() *Options {
	return &Options{ServerRunOptions: options.NewServerRunOptions(), Encryption: atrest.NewOptions()}
}

// Flags returns kube-apiserver's flags by section. The encryption flags stand where they
// always did, in the etcd section, and set [Options.Encryption].
func (o *Options) Flags() cliflag.NamedFlagSets {
	sections := o.ServerRunOptions.Flags()
	o.Encryption.AddFlags(sections.FlagSet("etcd"))
	return sections
}

// Validate reports everything that is wrong with the encryption flags. kube-apiserver's
// own options are validated by [Run], once they are complete.
func (o *Options) Validate() []error { return o.Encryption.Validate() }

// Parse sets o from a command line, for a server inside another program. Feature gates
// belong to the process and are fixed by this.
func (o *Options) Parse(args []string) error {
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, section := range o.Flags().FlagSets {
		flags.AddFlagSet(section)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("kube-apiserver's flags: %w", err)
	}
	return o.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
}
