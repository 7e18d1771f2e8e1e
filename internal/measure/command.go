package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// Main is the main function of a command that measures: parse makes options of the command
// line, and run measures. Neither prints an error.
func Main[O any](name string, parse func(args []string, help io.Writer) (O, error), run func(ctx context.Context, o O, out, progress io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	// What is measured logs here too; what fails here fails with an error.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Choose gives those of all that are called by the names, in the order of all; all of them
// if there are no names.
func Choose[C any](all []C, called func(C) string, names []string) ([]C, error) {
	var known []string
	chosen := slices.DeleteFunc(slices.Clone(all), func(c C) bool {
		known = append(known, called(c))
		return len(names) > 0 && !slices.Contains(names, called(c))
	})
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("there is no case %q: choose from %s", n, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// Save writes files into a folder, which is made if it is not there, and says so.
func Save(folder string, files map[string][]byte, out io.Writer) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	var names []string
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	_, err := fmt.Fprintf(out, "\nWritten to %s: %s\n", folder, strings.Join(names, ", "))
	return err
}

// Row writes a row of a table in Markdown.
func Row(to io.Writer, cells ...string) { fmt.Fprintf(to, "| %s |\n", strings.Join(cells, " | ")) }

// Case tells that a case begins, and how it ended.
func Case(to io.Writer, number, of int, title string, run func() error) error {
	fmt.Fprintf(to, "[%d/%d] %s … ", number+1, of, title)
	began, how := time.Now(), "done"
	err := run()
	if err != nil {
		how = "failed"
	}
	fmt.Fprintf(to, "%s in %s\n", how, time.Since(began).Round(100*time.Millisecond))
	return err
}
