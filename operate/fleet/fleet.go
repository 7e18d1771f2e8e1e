package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/kubeapi"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Timeout bounds what is asked of one apiserver, and WriteTimeout a write through it,
// for which it asks admission webhooks that may take 10 s each; unless the timeout of its
// Config is shorter.
const (
	Timeout      = 5 * time.Second
	WriteTimeout = 30 * time.Second
)

// Member is an apiserver of a cluster.
type Member struct {
	// Name is what it is called here.
	Name string
	// Config leads to this very apiserver, not to a load balancer. The limits on
	// requests in it do not apply.
	Config *rest.Config
}

// Fleet is the apiservers of a cluster. It is safe for concurrent use.
type Fleet struct {
	members   []*member
	clock     clock.PassiveClock
	namespace string
	fresh     bool // have the apiservers ask their plugins
	// run and writes make the canaries of one moment differ, those of others too.
	run    string
	writes atomic.Int64
	// reached is that an apiserver was, for a canary, whatever came of it.
	reached atomic.Bool
	// separate are the members that are apiservers of their own, whatever they say.
	separate map[string]bool
	metrics  time.Duration

	mu sync.Mutex
	// last is what each told when it last answered.
	last map[string]rotation.Instance
}

// member is a Member with what it takes to ask it.
type member struct {
	name   string
	api    *kubeapi.Client
	writes *kubeapi.Client // the same with another timeout
	// metrics bounds the answer with all its metrics.
	metrics time.Duration
	// cannotAsk is that it cannot be told to ask its plugins.
	cannotAsk atomic.Bool
}

// New is the fleet of members, which have names and addresses of their own. The
// clock says when they answered.
func New(members []Member, clk clock.PassiveClock, options ...Option) (*Fleet, error) {
	if len(members) == 0 {
		return nil, errors.New("no apiservers: name each that there is")
	}
	f := &Fleet{clock: clk, namespace: "kube-system", run: rand.Text(), metrics: DefaultMetricsTimeout,
		separate: map[string]bool{}, last: map[string]rotation.Instance{}}
	for _, o := range options {
		o(f)
	}
	if f.metrics <= 0 {
		return nil, fmt.Errorf("the time for all metrics of an apiserver is %s: give it more", f.metrics)
	}
	at := map[string]string{}
	for _, m := range members {
		added, err := newMember(m, f.metrics)
		if err != nil {
			return nil, err
		}
		if _, twice := f.member(m.Name); twice {
			return nil, fmt.Errorf("apiserver %q is named twice: name each once", m.Name)
		}
		address := added.api.Base.String()
		if other, taken := at[address]; taken {
			return nil, fmt.Errorf("apiservers %q and %q both lead to %s: give the address of each, past any load balancer", other, m.Name, address)
		}
		at[address] = m.Name
		f.members = append(f.members, added)
	}
	for name := range f.separate {
		if _, ok := f.member(name); !ok {
			return nil, fmt.Errorf("apiserver %q is to be separate, and there is none of that name: name those of the fleet", name)
		}
	}
	return f, nil
}

func newMember(m Member, metrics time.Duration) (*member, error) {
	if m.Name == "" {
		return nil, errors.New("an apiserver has no name: name each")
	}
	if m.Config == nil {
		return nil, fmt.Errorf("apiserver %q has no address: give the configuration that leads to it", m.Name)
	}
	api, err := kubeapi.New(m.Config, Timeout)
	if err != nil {
		return nil, fmt.Errorf("client for apiserver %q: %w: check the kubeconfig", m.Name, err)
	}
	writes := *api
	writes.Timeout = WriteTimeout
	if m.Config.Timeout > 0 {
		metrics, writes.Timeout = min(metrics, m.Config.Timeout), min(WriteTimeout, m.Config.Timeout)
	}
	return &member{name: m.Name, api: api, writes: &writes, metrics: metrics}, nil
}

// Names are those of the members, in their order.
func (f *Fleet) Names() []string {
	names := make([]string, len(f.members))
	for i, m := range f.members {
		names[i] = m.name
	}
	return names
}

// named is the member with a name, for something to be done.
func (f *Fleet) named(what, name string) (*member, error) {
	m, ok := f.member(name)
	if !ok {
		return nil, fmt.Errorf("%s through apiserver %q: there is no such apiserver: name one of the fleet", what, name)
	}
	return m, nil
}

func (f *Fleet) member(name string) (*member, bool) {
	for _, m := range f.members {
		if m.name == name {
			return m, true
		}
	}
	return nil, false
}

// Observe asks all apiservers at once, and gives what each told, by name. One
// that does not answer now keeps what it told last, from then, with a Problem:
// why, and what to do. One that never answered has nothing but a Problem, and so
// have two that one apiserver answers for: of which of them, nobody knows.
func (f *Fleet) Observe(ctx context.Context) map[string]rotation.Instance {
	before := f.latest()
	answers := make([]rotation.Instance, len(f.members))
	var asked sync.WaitGroup
	for i, m := range f.members {
		asked.Go(func() { answers[i] = f.observe(ctx, m) })
	}
	asked.Wait()
	told, seen := map[string]rotation.Instance{}, map[string]rotation.Instance{}
	for i, m := range f.members {
		told[m.name] = answers[i]
	}
	for name, instance := range told {
		if problem := f.shared(name, instance, told, before); problem != "" {
			instance = rotation.Instance{Problem: problem}
		}
		seen[name] = instance
	}
	return seen
}

// latest is what each told when it last answered.
func (f *Fleet) latest() map[string]rotation.Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.last)
}

func (f *Fleet) observe(ctx context.Context, m *member) rotation.Instance {
	instance, err := m.ask(ctx, f.clock, f.fresh)
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.last[m.name]
	switch {
	case err != nil:
		instance, instance.Problem = last, err.Error()
	case !instance.CheckedAt.Before(last.CheckedAt): // or else it was overtaken
		f.last[m.name] = instance
	}
	instance.Providers = maps.Clone(instance.Providers) // the caller may add to them
	return instance
}
