package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// shownErrors is how many of the last errors in the log are printed when a step did not hold.
const shownErrors = 5

// captureLogs sends what kube-apiserver and the plugin log into a file, from now until the process ends.
func captureLogs(f folder) (io.Closer, error) {
	file, err := os.OpenFile(f.log("kube-apiserver"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	log.SetOutput(file)
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(file))))
	// The server's own loopback clients would log the warnings that the server itself sends.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return file, nil
}

// explain prints the last errors that were logged, and where the rest is.
func (f folder) explain(r *report) {
	text, err := os.ReadFile(f.log("kube-apiserver"))
	if err != nil {
		r.line("       the log cannot be read: %v", err)
		return
	}
	var failures []string
	for line := range strings.Lines(string(text)) {
		if line[0] == 'E' || line[0] == 'F' {
			failures = append(failures, strings.TrimSuffix(line, "\n"))
		}
	}
	for _, line := range failures[max(0, len(failures)-shownErrors):] {
		r.line("       %s", line)
	}
	if f.kept() {
		r.line("       all logs: %s", f.logs())
	} else {
		r.line("       run it with --data DIR to keep all logs")
	}
}
