package server

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/kube-atrest/atrest"
)

// Options are kube-apiserver's, with the encryption flags handed to atrest. Not safe for concurrent use.
type Options struct {
	*options.ServerRunOptions
	// Encryption is what the three encryption flags set. EncryptionProviderConfigFilepath and its sister in
	// ServerRunOptions.Etcd stay empty, which is how kube-apiserver's own encryption is told to do nothing.
	Encryption *atrest.Options
}

// NewOptions returns kube-apiserver's defaults, without encryption.
func NewOptions() *Options {
	return &Options{ServerRunOptions: options.NewServerRunOptions(), Encryption: atrest.NewOptions()}
}

// Flags returns kube-apiserver's flags by section. The encryption flags stand where they always did, in the
// etcd section, and set [Options.Encryption].
func (o *Options) Flags() cliflag.NamedFlagSets {
	sections := o.ServerRunOptions.Flags()
	sections.FlagSets["etcd"] = replaceFlags(sections.FlagSet("etcd"), o.Encryption.AddFlags)
	return sections
}

// Validate reports everything that is wrong with the encryption flags. kube-apiserver's own options are
// validated by [Run], once they are complete.
func (o *Options) Validate() []error { return o.Encryption.Validate() }

// replaceFlags returns old with the flags that add defines in place of its own of the same name.
func replaceFlags(old *pflag.FlagSet, add func(*pflag.FlagSet)) *pflag.FlagSet {
	ours := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(ours)
	merged := pflag.NewFlagSet(old.Name(), pflag.ContinueOnError)
	merged.SetNormalizeFunc(old.GetNormalizeFunc())
	old.VisitAll(func(f *pflag.Flag) {
		if ours.Lookup(f.Name) == nil {
			merged.AddFlag(f)
		}
	})
	merged.AddFlagSet(ours)
	return merged
}
