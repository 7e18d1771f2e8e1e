package overview

import (
	"context"
	"errors"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/proof"
)

// Look asks all apiservers once, and the cluster which others there are but those
// without, which are excused. count looks into etcd, and is nil if nobody is to. The
// clock is that of the fleet.
func Look(ctx context.Context, f proof.Fleet, without []string, clk clock.PassiveClock, count func(context.Context) *Etcd) Seen {
	s := Seen{Began: clk.Now(), Apiservers: f.Names(), Unnamed: map[string]string{}, Clusters: map[string]Cluster{}}
	s.Told = f.Observe(ctx)
	s.Ended = clk.Now()
	for _, name := range s.Apiservers {
		if len(s.Apiservers) > 1 && s.fresh(s.Told[name]) {
			s.Clusters[name] = clusterOf(ctx, f, name)
		}
	}
	if s.answered() { // one that never did could be any of those that nobody named
		others, err := proof.Unnamed(ctx, f, without)
		if err != nil {
			s.Untold = err.Error()
		}
		for _, other := range others {
			s.Unnamed[other.Name] = other.Why
		}
	}
	if count != nil {
		s.Etcd = count(ctx)
	}
	return s
}

func clusterOf(ctx context.Context, f proof.Fleet, apiserver string) Cluster {
	uid, err := f.Cluster(ctx, apiserver)
	if why := errors.Unwrap(err); why != nil { // what is not known is said beside it
		err = why
	}
	if err != nil {
		return Cluster{Problem: err.Error()}
	}
	return Cluster{UID: uid}
}

// answered reports whether each apiserver did, at any time.
func (s Seen) answered() bool {
	for _, name := range s.Apiservers {
		if s.Told[name].CheckedAt.IsZero() {
			return false
		}
	}
	return true
}
