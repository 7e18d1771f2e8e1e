package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// sharedNamespace is where Secrets are that have several writers, which are loops.
	sharedNamespace    = "kube-public"
	contenders, shared = 3, 4
)

// contend makes, changes, reads or deletes a Secret that others contend for. That it is
// there already, or is not, is an answer too.
func (l *Load) contend(n, i int, random *rand.Rand) {
	name := fmt.Sprintf("shared-%d", random.IntN(shared))
	what := []action{get, get, create, update, update, remove}[random.IntN(6)]
	number := 1 + n + contenders*i // which nobody else writes
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"value": value(name, number)}}
	_ = l.do(fmt.Sprintf("%s %s", what, name), func(ctx context.Context, c client) error { // it tells itself
		call, found := l.history.now(), &corev1.Secret{}
		var err error
		switch what {
		case get:
			found, err = c.shared.Get(ctx, name, metav1.GetOptions{})
		case create:
			_, err = c.shared.Create(ctx, secret, metav1.CreateOptions{})
		case update:
			_, err = c.shared.Update(ctx, secret, metav1.UpdateOptions{})
		case remove:
			err = c.shared.Delete(ctx, name, metav1.DeleteOptions{})
		}
		if what == get {
			number = numberOf(found)
		}
		l.history.add(sharedNamespace+"/"+name, what, number, call, err)
		if outcomeOf(what, err) == refused {
			return nil
		}
		return err
	})
}
