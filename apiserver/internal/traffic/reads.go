package traffic

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cached asks for what is at least as new as everything that was acknowledged, which an
// apiserver takes from its watch cache.
func (l *Load) cached() metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: l.book.newest(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
}

// read reads one Secret from etcd or from the watch cache, or all of them in three ways,
// and holds what comes to the book.
func (l *Load) read(_, i int, random *rand.Rand) {
	var err error
	switch i % 30 { // a list is hundreds of reads
	case 9:
		err = l.do("list from the cache", l.list(l.cached))
	case 19:
		err = l.do("list", l.list(func() metav1.ListOptions { return metav1.ListOptions{} }))
	case 29:
		err = l.do("list in pages", l.list(func() metav1.ListOptions { return metav1.ListOptions{Limit: 100} }))
	case 0, 1, 2, 10, 11, 12, 20, 21, 22:
		name := l.book.any(random)
		err = l.do("get "+name+" from the cache", l.get(name, l.book.newest))
	default:
		name := l.book.any(random)
		err = l.do("get "+name, l.get(name, fromEtcd))
	}
	if err == nil {
		l.count(&l.reads)
	}
}

// fromEtcd is the version to ask for what no cache answers.
func fromEtcd() string { return "" }

// get is the request for one Secret of at least a version, or from etcd if that is empty.
func (l *Load) get(name string, version func() string) func(context.Context, client) error {
	return func(ctx context.Context, c client) error {
		at, call, newer := l.book.open(), l.history.now(), version()
		secret, err := c.secrets.Get(ctx, name, metav1.GetOptions{ResourceVersion: newer})
		if newer == "" {
			l.history.add(Namespace+"/"+name, get, numberOf(secret), call, err)
		}
		if err != nil {
			return err
		}
		return at.check(secret)
	}
}

// list is the request for all Secrets.
func (l *Load) list(options func() metav1.ListOptions) func(context.Context, client) error {
	return func(ctx context.Context, c client) error {
		at, call, o := l.book.open(), l.history.now(), options()
		var all []corev1.Secret
		for {
			page, err := c.secrets.List(ctx, o)
			if err != nil {
				return err
			}
			all = append(all, page.Items...)
			if page.Continue == "" {
				l.listed(all, options(), call)
				return at.checkAll(all)
			}
			o.Continue = page.Continue
		}
	}
}

// listed notes a list that has to show what was written before it was asked for.
func (l *Load) listed(all []corev1.Secret, o metav1.ListOptions, call time.Duration) {
	if o.ResourceVersion != "" {
		return
	}
	numbers := map[string]int{}
	for i := range all {
		numbers[all[i].Name] = numberOf(&all[i])
	}
	l.history.addAll(numbers, call)
}
