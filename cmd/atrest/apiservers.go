package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
)

// fleetFlags name all apiservers of a cluster.
type fleetFlags struct {
	apiservers, without, separate []string
	canaries                      string
	metrics                       time.Duration
}

func (f *fleetFlags) add(flags *pflag.FlagSet) {
	f.addAsked(flags)
	flags.StringVar(&f.canaries, "canaries", "kube-system", "namespace for the Secrets and ConfigMaps that are written to see what an apiserver writes")
}

// addAsked declares those of a command that asks the apiservers and writes nothing.
func (f *fleetFlags) addAsked(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.apiservers, "apiservers", nil,
		"contexts of the kubeconfig, by commas: one for each apiserver there is, with its own address and not that of a load balancer")
	flags.StringSliceVar(&f.without, "without-apiservers", nil,
		"apiservers that the cluster still knows of and that are gone, or not to be asked, by commas: the names that the error calls them by; any-other if it is known that there are no others, as of aggregated apiservers, of which no Leases tell")
	flags.StringSliceVar(&f.separate, "separate-apiservers", nil,
		"apiservers of --apiservers that are different ones though they tell the same identity, by commas")
	flags.DurationVar(&f.metrics, "metrics-timeout", fleet.DefaultMetricsTimeout, "how long the metrics of one apiserver may take")
}

// open is the apiservers, which are called as their contexts. Nobody is asked.
// Mistakes in the flags are usage errors.
func (f *fleetFlags) open(cluster *clusterFlags, options ...fleet.Option) (*fleet.Fleet, error) {
	if len(f.apiservers) == 0 {
		return nil, usagef("flag --apiservers is missing: name the kubeconfig context of each apiserver there is: " +
			"without asking them all nobody knows what they write with")
	}
	var members []fleet.Member
	for _, context := range f.apiservers {
		if context == "" {
			return nil, usagef("flag --apiservers has an empty name: name the kubeconfig context of each apiserver, by commas")
		}
		config, err := cluster.config(context)
		if err != nil {
			return nil, err
		}
		members = append(members, fleet.Member{Name: context, Config: config})
	}
	return f.of(members, append(options, fleet.SeparateServers(f.separate...))...)
}

// warnOfNobody warns of what --without-apiservers names that is no apiserver.
func (f *fleetFlags) warnOfNobody(ctx context.Context, s streams, all *fleet.Fleet, cluster *migrate.Cluster) {
	for _, name := range proof.Absent(ctx, all, cluster, f.without) {
		s.warn("flag --without-apiservers: no apiserver %s exists", printable(name))
	}
}

// each are the same apiservers, to see what each lists.
func (f *fleetFlags) each(cluster *clusterFlags) (map[string]proof.API, error) {
	all := map[string]proof.API{}
	for _, context := range f.apiservers {
		config, err := cluster.config(context)
		if err != nil {
			return nil, err
		}
		if all[context], err = migrate.NewCluster(config, clock.RealClock{}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// of are apiservers as the flags have them asked.
func (f *fleetFlags) of(members []fleet.Member, options ...fleet.Option) (*fleet.Fleet, error) {
	if f.metrics <= 0 {
		return nil, usagef("flag --metrics-timeout is %s: it has to be over 0", f.metrics)
	}
	options = append(options, fleet.CanariesIn(f.canaries), fleet.MetricsTimeout(f.metrics))
	all, err := fleet.New(members, clock.RealClock{}, options...)
	if err != nil {
		return nil, usagef("flag --apiservers: %w", err)
	}
	return all, nil
}
