package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
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

	members []fleet.Member // that --apiservers names
}

func (f *fleetFlags) add(flags *pflag.FlagSet) {
	f.addAsked(flags)
	flags.StringVar(&f.canaries, "canaries", "kube-system", "namespace for the Secrets and ConfigMaps that are written to see what an apiserver writes")
}

// addAsked declares those of a command that asks the apiservers and writes nothing.
func (f *fleetFlags) addAsked(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.apiservers, "apiservers", nil,
		"each apiserver there is, by commas: a context of the kubeconfig with its own address and not that of a load balancer, or that address, as https://10.0.0.1:6443, for the user of --context; all finds them by the endpoints of the Service kubernetes, but for those of --without-apiservers")
	flags.StringSliceVar(&f.without, "without-apiservers", nil,
		"apiservers that the cluster still knows of and that are gone, or not to be asked, by commas: the names that the error calls them by; any-other if it is known that there are no others, as of aggregated apiservers, of which no Leases tell")
	flags.StringSliceVar(&f.separate, "separate-apiservers", nil,
		"apiservers of --apiservers that are different ones though they tell the same identity, by commas")
	flags.DurationVar(&f.metrics, "metrics-timeout", fleet.DefaultMetricsTimeout, "how long the metrics of one apiserver may take")
}

// open is the apiservers. Of those that are named nobody is asked; which there are is
// asked for all. Mistakes in the flags are usage errors.
func (f *fleetFlags) open(ctx context.Context, cluster *clusterFlags, options ...fleet.Option) (*fleet.Fleet, error) {
	if err := f.find(ctx, cluster); err != nil {
		return nil, err
	}
	return f.of(f.members, append(options, fleet.SeparateServers(f.separate...))...)
}

// everyApiserver is the word for all apiservers that the cluster tells of, unless it is a
// context.
const everyApiserver = "all"

// find makes members of what --apiservers says, and their names of it.
func (f *fleetFlags) find(ctx context.Context, cluster *clusterFlags) error {
	if len(f.apiservers) == 0 {
		return usagef("flag --apiservers is missing: name each apiserver there is, by its kubeconfig context or its address, or say all: " +
			"without asking them all nobody knows what they write with")
	}
	var all []fleet.Member
	for _, text := range f.apiservers {
		found, err := members(ctx, cluster, text)
		if err != nil {
			return err
		}
		if text == everyApiserver {
			found = f.unexcused(found)
		}
		all = append(all, found...)
	}
	f.members, f.apiservers = all, nil
	for _, m := range all {
		f.apiservers = append(f.apiservers, m.Name)
	}
	return nil
}

// unexcused are those apiservers that were found and that are not excused by their name,
// HOST:PORT, which then excuses the endpoint, or by that of the endpoint, HOST.
func (f *fleetFlags) unexcused(found []fleet.Member) []fleet.Member {
	names := slices.Clone(f.without)
	return slices.DeleteFunc(found, func(m fleet.Member) bool {
		host, _, _ := net.SplitHostPort(m.Name)
		if i := slices.Index(names, m.Name); i >= 0 {
			f.without[i] = host
			return true
		}
		return slices.Contains(names, host)
	})
}

// members are those that a part of --apiservers names.
func members(ctx context.Context, cluster *clusterFlags, text string) ([]fleet.Member, error) {
	switch {
	case text == "":
		return nil, usagef("flag --apiservers has an empty name: name each apiserver by its kubeconfig context or its address, by commas")
	case text == everyApiserver && !cluster.has(text):
		through, err := cluster.user()
		if err != nil {
			return nil, err
		}
		return fleet.Found(ctx, through)
	case strings.Contains(text, "://"):
		user, err := cluster.user()
		if err != nil {
			return nil, err
		}
		m, err := fleet.At(text, user)
		if err != nil {
			return nil, usagef("flag --apiservers: %w", err)
		}
		return []fleet.Member{m}, nil
	}
	config, err := cluster.config(text)
	return []fleet.Member{{Name: text, Config: config}}, err
}

// through is the apiserver that objects are listed and rewritten through: that of
// --context, else the first.
func (f *fleetFlags) through(cluster *clusterFlags) (fleet.Member, error) {
	if cluster.context == "" {
		return f.members[0], nil
	}
	config, err := cluster.config("")
	return fleet.Member{Name: cluster.context, Config: config}, err
}

// warnOfNobody warns of what --without-apiservers names that is no apiserver, and where
// nobody tells of apiservers without a Lease.
func (f *fleetFlags) warnOfNobody(ctx context.Context, s streams, all *fleet.Fleet, cluster *migrate.Cluster) {
	for _, name := range proof.Absent(ctx, all, cluster, f.without) {
		s.warn("flag --without-apiservers: no apiserver %s exists", printable(name))
	}
	if slices.Contains(f.without, proof.AnyOther) {
		return
	}
	if err := all.Unread(ctx); err != nil && ctx.Err() == nil {
		s.warn("an apiserver that has no Lease would not be seen, as the endpoints of the Service kubernetes cannot be read: %s", printable(err.Error()))
	}
}

// each are the same apiservers, to see what each lists.
func (f *fleetFlags) each() (map[string]proof.API, error) {
	all := map[string]proof.API{}
	for _, m := range f.members {
		cluster, err := migrate.NewCluster(m.Config, clock.RealClock{})
		if err != nil {
			return nil, err
		}
		all[m.Name] = cluster
	}
	return all, nil
}

// aggregated are the API groups that other apiservers serve behind these.
func (f *fleetFlags) aggregated(ctx context.Context) (groups []string, err error) {
	for _, m := range f.members {
		cluster, err := migrate.NewCluster(m.Config, clock.RealClock{})
		if err != nil {
			return nil, err
		}
		all, err := cluster.Aggregated(ctx)
		if err != nil {
			return nil, fmt.Errorf("apiserver %s: %w", m.Name, err)
		}
		for _, a := range all {
			groups = append(groups, a.Groups...)
		}
	}
	return groups, nil
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
