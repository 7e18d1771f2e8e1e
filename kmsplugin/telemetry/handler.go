package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// Health is what a [kmsplugin.Keeper] knows of itself.
type Health interface {
	// Status is what was found at the last look, and Check looks now.
	Status(context.Context) (keyID string, err error)
	Check(context.Context) error
}

// Handler answers on
//
//   - /metrics: the metrics, for Prometheus;
//   - /livez: 200 while the process answers;
//   - /readyz: 200 while a version is announced and the last test DEK came back;
//   - /healthz: the same after the back end was asked, now: see [kmsplugin.Keeper.Check].
//
// What is not well is 503 and the class of the error alone: its text is for apiservers and the
// log, and anybody on the host may ask here.
func (m *Metrics) Handler(health Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /livez", answer(func(context.Context) error { return nil }))
	mux.HandleFunc("GET /readyz", answer(func(ctx context.Context) error {
		_, err := health.Status(ctx)
		return err
	}))
	mux.HandleFunc("GET /healthz", answer(health.Check))
	return mux
}

func answer(check func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := check(r.Context()); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "not well, %s: see the log of the plugin\n", kmsplugin.CodeOf(err))
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
