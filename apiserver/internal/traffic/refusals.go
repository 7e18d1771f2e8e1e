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
	found []Refusal
}

// Refusal is an answer that is none, of an apiserver.
type Refusal struct{ Apiserver, What string }

// watch notes the refusals of an apiserver.
func (r *refusals) watch(apiserver string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			switch {
			case err != nil:
				r.add(apiserver, "%s %s: %v", request.Method, request.URL.Path, err)
			case contended(request, response), madeBefore(request, response):
			case response.StatusCode >= http.StatusBadRequest:
				r.add(apiserver, "%s %s: %s", request.Method, request.URL.Path, response.Status)
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

// madeBefore reports whether what is to be made is there: whoever asked had perhaps asked an apiserver before
// that was killed, and knows whether that may be.
func madeBefore(request *http.Request, response *http.Response) bool {
	return request.Method == http.MethodPost && response.StatusCode == http.StatusConflict
}

func (r *refusals) add(apiserver, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, Refusal{apiserver, fmt.Sprintf(format, args...)})
}

func (r *refusals) all() []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
