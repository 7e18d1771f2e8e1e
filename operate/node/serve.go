package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Where a node answers on its socket.
const (
	reportPath  = "/report"
	metricsPath = "/metrics"
	// maxReport is what is read of an answer, in bytes.
	maxReport = 4 << 20
)

// Socket is the path on which the node in a folder [Options.Run] tells of itself.
func Socket(run string) string { return filepath.Join(run, "node.sock") }

// Serve tells what report gives on a socket of mode 0600, as JSON and as metrics, until ctx ends.
// A socket that is left there is replaced: whoever calls this has the lock of the folder.
func Serve(ctx context.Context, path string, report func() *Report) error {
	if err := removed(path); err != nil {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("socket that tells of the node: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // its folder lets nobody else in before
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+reportPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report()) // what fails is the connection
	})
	mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, report().Metrics())
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ReadReport asks the node whose socket is at path.
func ReadReport(ctx context.Context, path string) (*Report, error) {
	text, err := get(ctx, path, reportPath)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("what %s tells is no report: %w", path, err)
	}
	return &r, nil
}

// ReadMetrics asks it for its metrics.
func ReadMetrics(ctx context.Context, path string) (string, error) {
	text, err := get(ctx, path, metricsPath)
	return string(text), err
}

func get(ctx context.Context, path, what string) ([]byte, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no node tells of itself at %s: does one run with this folder?", path)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+what, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the node at %s does not answer: %w", path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReport+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the node at %s: %w", path, err)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the node at %s answers %s", path, answer.Status)
	case len(text) > maxReport:
		return nil, fmt.Errorf("the node at %s tells more than %d bytes", path, maxReport)
	}
	return text, nil
}
