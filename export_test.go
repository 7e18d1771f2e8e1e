package atrest

import (
	"net/http"

	"k8s.io/apiserver/pkg/server"
)

// PostStartHook is what [Encryption.Install] has the server call when it serves.
func (e *Encryption) PostStartHook(hook server.PostStartHookContext) error {
	return e.postStartHook(hook)
}

// ServeStatus is what [Encryption.Install] puts before the API.
func (e *Encryption) ServeStatus(next http.Handler) http.Handler { return e.serveStatus(next) }
