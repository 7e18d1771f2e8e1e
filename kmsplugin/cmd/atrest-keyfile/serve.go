package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

type serveOptions struct {
	listen    string
	keyFile   string
	create    bool
	verbosity int
}

func newServe() *cobra.Command {
	var o serveOptions
	command := &cobra.Command{
		Use:   "serve --listen unix:///PATH --key-file PATH",
		Short: "Serve KMS v2 on a unix socket until SIGTERM or SIGINT",
		Long: `Serve KMS v2 on a unix socket until SIGTERM or SIGINT.

The socket's folder must exist; the socket has mode 0600, so the apiserver runs
as the same user or as root. A socket left by a crash is replaced, one that
somebody serves on is not. unix:///@name is an abstract socket (Linux), for the
same two users.

With --create a key file is made if there is none. Leave the flag away once
there is one: if the disk with the file is not mounted one day, an error is
better than a new key that reads nothing.`,
		Example: `  atrest-keyfile serve --listen unix:///run/kmsplugin/keyfile.sock --key-file /var/lib/atrest/kek.json`,
		Args:    noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "listen", "key-file"); err != nil {
				return err
			}
			config := textlogger.NewConfig(textlogger.Output(command.ErrOrStderr()), textlogger.Verbosity(o.verbosity))
			return o.run(klog.NewContext(command.Context(), textlogger.NewLogger(config)))
		},
	}
	keyFileFlag(command, &o.keyFile)
	command.Flags().StringVar(&o.listen, "listen", "", "socket to serve on, unix:///PATH or unix:///@NAME (required)")
	command.Flags().BoolVar(&o.create, "create", false, "make the key file if it does not exist")
	command.Flags().IntVarP(&o.verbosity, "v", "v", 0, "log verbosity; from 2 on each failed call is logged")
	return command
}

func (o serveOptions) run(ctx context.Context) error {
	plugin, err := o.open(ctx)
	if err != nil {
		return err
	}
	server, err := kmsplugin.Listen(ctx, o.listen, plugin)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	if status, err := plugin.Status(ctx); err == nil {
		logger.Info("serving KMS v2", "endpoint", server.Endpoint(), "keyFile", o.keyFile, "keyID", status.KeyID)
	}
	if err := server.Serve(ctx); err != nil {
		return err
	}
	logger.Info("stopped", "endpoint", server.Endpoint())
	return nil
}

// open makes the file only after it was not there, so that a file in a folder
// that is read-only can be served with --create too.
func (o serveOptions) open(ctx context.Context) (*keyfile.Plugin, error) {
	file := keyfile.At(o.keyFile)
	plugin, err := file.Open()
	if !errors.Is(err, fs.ErrNotExist) {
		return plugin, err
	}
	if !o.create {
		return nil, fmt.Errorf("%w (serve --create makes one)", err)
	}
	created, err := file.Create(ctx)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("made a new key file: keep a copy, away from copies of etcd", "keyFile", o.keyFile, "keyID", created.KeyID)
	return file.Open()
}
