package traffic

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/transport"
)

// refusals are the answers that are none, also those after which client-go asks again by
// itself.
type refusals struct {
	mu    sync.Mutex
	found []string
}

// watch notes the refusals of an apiserver.
func (r *refusals) watch(apiserver string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			switch {
			case err != nil:
				r.add("%s %s of %s: %v", request.Method, request.URL.Path, apiserver, err)
			case contended(request, response):
			case response.StatusCode >= http.StatusBadRequest:
				r.add("%s %s of %s: %s", request.Method, request.URL.Path, apiserver, response.Status)
			}
			return response, err
		})
	}
}

// contended reports whether somebody else was just faster.
func contended(request *http.Request, response *http.Response) bool {
	return strings.Contains(request.URL.Path, "/namespaces/"+sharedNamespace+"/") &&
		(response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusConflict)
}

func (r *refusals) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

func (r *refusals) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
