package atrest

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/providers"
)

// The flags, of which the first two are kube-apiserver's own.
const (
	flagConfigFile = "encryption-provider-config"
	flagReload     = "encryption-provider-config-automatic-reload"
	flagDEKSource  = "encryption-kms-dek-source"
)

// Options are what an apiserver's command line says about encryption at rest,
// and what a program may say beyond it. Fill them before [Options.Start] or
// [Options.ApplyTo]; they are not changed by either.
type Options struct {
	// ConfigFile is the path of the EncryptionConfiguration. Without one
	// nothing is encrypted.
	ConfigFile string
	// AutomaticReload follows changes of the file while the server runs.
	AutomaticReload bool
	// DEKSource is how values are written with KMS v2: counter or seed, see
	// [envelope.WriteMode]. Both are always read.
	DEKSource string

	// KMS are the times and limits of KMS v2 providers; there is no flag for
	// them. Its Mode is DEKSource and its Observer is not used.
	KMS envelope.Options
}

// NewOptions gives the defaults: no file, and writing in mode counter, or in
// mode seed under GODEBUG=fips140=only.
func NewOptions() *Options { return &Options{DEKSource: string(envelope.WriteModes()[0])} }

// AddFlags adds the three flags to fs. A set that has kube-apiserver's two of
// them already, from EtcdOptions.AddFlags, keeps one of each: the values now go
// to these options, and EtcdOptions does nothing about encryption.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.StringVar(&o.ConfigFile, flagConfigFile, o.ConfigFile,
		"The file with the EncryptionConfiguration: which resources are encrypted in etcd, and by which providers.")
	own.BoolVar(&o.AutomaticReload, flagReload, o.AutomaticReload,
		"Follow changes of the file set by --"+flagConfigFile+" without a restart. A content that cannot be used changes nothing.")
	own.StringVar(&o.DEKSource, flagDEKSource, o.DEKSource,
		"How values are written with KMS v2. 'counter': one data encryption key for each key_id of the plugin, with a counted nonce; the fastest. "+
			"'seed': a key expanded for each value, as kube-apiserver writes; for machines that are snapshotted and resumed, "+
			"and the default under GODEBUG=fips140=only. What either wrote is always read.")
	own.VisitAll(func(f *pflag.Flag) {
		if theirs := fs.Lookup(f.Name); theirs != nil {
			theirs.Value, theirs.DefValue, theirs.Usage = f.Value, f.DefValue, f.Usage
			return
		}
		fs.AddFlag(f)
	})
}

// Validate reports what is wrong with the flags. The file is looked at by
// [Options.Start].
func (o *Options) Validate() []error {
	var errs []error
	if o.AutomaticReload && o.ConfigFile == "" {
		errs = append(errs, fmt.Errorf("--%s is set without --%s: name the file to follow", flagReload, flagConfigFile))
	}
	if err := envelope.CheckWriteMode(envelope.WriteMode(o.DEKSource)); err != nil {
		errs = append(errs, fmt.Errorf("--%s: %w", flagDEKSource, err))
	}
	return errs
}

// buildOptions are o as the config package wants them.
func (o *Options) buildOptions(apiServerID string) providers.Options {
	kms := o.KMS
	kms.Mode = envelope.WriteMode(o.DEKSource)
	return providers.Options{Envelope: kms, APIServerID: apiServerID}
}
