package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// readyzPath is where any apiserver tells whether it is ready for all that it is asked.
const readyzPath = "/readyz"

// Unready asks all apiservers at once whether they are ready, and gives why one is not, by
// its name. One that is ready is not in it.
func (f *Fleet) Unready(ctx context.Context) map[string]string {
	answers := make([]error, len(f.members))
	var asked sync.WaitGroup
	for i, m := range f.members {
		asked.Go(func() { answers[i] = m.isReady(ctx) })
	}
	asked.Wait()
	unready := map[string]string{}
	for i, m := range f.members {
		if answers[i] != nil {
			unready[m.name] = answers[i].Error()
		}
	}
	return unready
}

func (m *member) isReady(ctx context.Context) error {
	_, err := m.readiness(ctx)
	return err
}

// readiness is why an apiserver is not ready, with the checks that failed, if it names
// them.
func (m *member) readiness(ctx context.Context) (failing []string, err error) {
	ctx, cancel := within(ctx, m.api.Timeout, reachable)
	defer cancel()
	resp, err := m.do(ctx, http.MethodGet, readyzPath)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return nil, nil
	case http.StatusForbidden:
		return nil, fmt.Errorf("%s: 403 Forbidden: the user needs the verb get for the nonResourceURL %s", readyzPath, readyzPath)
	}
	said := text(resp.Body)
	failing = failed(said)
	if failing != nil {
		said = strings.Join(failing, ", ") + " failed"
	}
	return failing, fmt.Errorf("%s: %s: %s", readyzPath, resp.Status, orNothing(said))
}

// failed are the names of the checks that failed in what /readyz says.
func failed(said string) (names []string) {
	for _, word := range strings.Fields(said) {
		if name, ok := strings.CutPrefix(word, "[-]"); ok {
			names = append(names, name)
		}
	}
	return names
}
