package main

import (
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/fleet"
)

// fleetFlags name all apiservers of a cluster.
type fleetFlags struct{ apiservers []string }

func (f *fleetFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.apiservers, "apiservers", nil,
		"contexts of the kubeconfig, by commas: one for each apiserver there is, with its own address and not that of a load balancer")
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
	all, err := fleet.New(members, clock.RealClock{}, options...)
	if err != nil {
		return nil, usagef("flag --apiservers: %w", err)
	}
	return all, nil
}
