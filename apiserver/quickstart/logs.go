package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// shownErrors is how many of the last errors in the log are printed when a step did not
// hold.
const shownErrors = 5

// captureLogs sends what kube-apiserver and the plugin log into a file, from now until
// the process ends.
func captureLogs(f folder) (io.Closer, error) {
	file, err := os.OpenFile(f.log("kube-apiserver"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	log.SetOutput(file)
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(file))))
	// The server's own loopback clients would log the warnings that the server itself
	// sends.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return file, nil
}

// onFatal lets kube-apiserver's way out of what it cannot mend, which is to end the
// process on the spot, say why and leave no temporary folder behind.
func (f folder) onFatal(r *report) {
	klog.OsExit = func(int) {
		lines := f.logged(r)
		r.line("")
		r.fails("kube-apiserver runs", errors.New(lines[len(lines)-1]))
		f.explain(r)
		if err := f.remove(); err != nil {
			r.line("       %v", err)
		}
		os.Exit(1)
	}
}

// explain prints the last errors that were logged, and where the rest is.
func (f folder) explain(r *report) {
	failures := slices.DeleteFunc(f.logged(r), func(line string) bool {
		return !strings.HasPrefix(line, "E") && !strings.HasPrefix(line, "F")
	})
	for _, line := range failures[max(0, len(failures)-shownErrors):] {
		r.line("       %s", line)
	}
	if f.kept() {
		r.line("       all logs: %s", f.logs())
	} else {
		r.line("       run it with --data DIR to keep all logs")
	}
}

// logged returns the lines that kube-apiserver and the plugin have logged, at least one.
func (f folder) logged(r *report) []string {
	text, err := os.ReadFile(f.log("kube-apiserver"))
	if err != nil {
		r.line("       the log cannot be read: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
