package main

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// logOptions are the flags on the log, which goes to standard error.
type logOptions struct {
	format    string
	verbosity int
}

func (o *logOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.format, "log-format", "text", "text, as Kubernetes writes it, or json")
	flags.IntVarP(&o.verbosity, "v", "v", 0, "log verbosity; from 2 on each failed call is logged")
}

func (o logOptions) logger(to io.Writer) (klog.Logger, error) {
	switch o.format {
	case "text":
		return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(to), textlogger.Verbosity(o.verbosity))), nil
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.Level(-o.verbosity)})), nil
	}
	return klog.Logger{}, usagef("flag --log-format is %q: text or json", o.format)
}
