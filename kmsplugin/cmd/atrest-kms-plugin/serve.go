package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/user"
	"regexp"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// serveOptions are the flags that every "serve" has.
type serveOptions struct {
	listen   string
	group    string
	instance string
	log      logOptions
	port     portOptions
	config   kmsplugin.Config
}

// addFlags adds them, with the values of the back end as they come.
func (o *serveOptions) addFlags(command *cobra.Command, config kmsplugin.Config) {
	flags := command.Flags()
	o.config = config
	flags.StringVar(&o.listen, "listen", "", "socket to serve on, unix:///PATH (required)")
	flags.StringVar(&o.group, "group", "", "group whose members may connect too, by name or gid: for an apiserver that runs as another user")
	flags.StringVar(&o.instance, "instance", "", "name of this plugin, for each line of its log and each of its metrics: to tell several apart")
	flags.DurationVar(&o.config.Poll, "poll", config.Poll, "time between two looks at the versions of the key")
	flags.DurationVar(&o.config.HoldDown, "hold-down", config.HoldDown, "how old a version has to be before it wraps: longer than it takes to get to all nodes")
	flags.StringVar(&o.config.Pin, "pin", "", "ID of the one version to wrap with, whichever else is to write")
	o.log.addFlags(flags)
	o.port.addFlags(flags)
}

// options are those of the socket: one that systemd has bound is taken over.
func (o serveOptions) options() ([]kmsplugin.Option, error) {
	inherited, err := kmsplugin.Inherited()
	switch {
	case err != nil:
		return nil, usageError{err}
	case inherited != nil && o.group != "":
		return nil, usagef("flag --group: the socket was passed on by whoever started this, and is theirs: SocketGroup in the .socket unit")
	case inherited != nil:
		return []kmsplugin.Option{kmsplugin.WithListener(inherited)}, nil
	case o.group == "":
		return nil, nil
	}
	gid, err := gidOf(o.group)
	if err != nil {
		return nil, err
	}
	return []kmsplugin.Option{kmsplugin.WithGroup(gid)}, nil
}

// noGID is what chown takes for "as it is".
const noGID = math.MaxUint32

// gidOf is that of a group by its name or by itself. A larger number is cut off by the kernel's call,
// and would be another group.
func gidOf(group string) (int, error) {
	text := group
	if _, err := strconv.Atoi(group); err != nil {
		named, err := user.LookupGroup(group)
		if err != nil {
			return 0, usagef("flag --group: %w: name one of getent group, or its gid", err)
		}
		text = named.Gid
	}
	gid, err := strconv.ParseUint(text, 10, 32)
	if err != nil || gid == noGID {
		return 0, usagef("flag --group: %s is no gid: name one of getent group, or its gid", text)
	}
	return int(gid), nil
}

// ofListening gives an error of a flag that names where to listen its exit code: but for somebody
// who listens there already, or an end of the command meanwhile, it has to be put right.
func ofListening(ctx context.Context, flag string, err error) error {
	err = fmt.Errorf("flag --%s: %w", flag, err)
	if ctx.Err() != nil || errors.Is(err, kmsplugin.ErrSocketInUse) || errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return usageError{err}
}

// serve serves a back end until the command is told to end. ready is called once the socket is
// there and before anything is answered; what it says of the back end is logged.
func (o serveOptions) serve(command *cobra.Command, backend kmsplugin.Backend, ready func(context.Context) ([]any, error)) error {
	logger, err := o.log.logger(command.ErrOrStderr())
	if err != nil {
		return err
	}
	if o.instance != "" {
		logger = logger.WithValues("instance", o.instance)
	}
	ctx := klog.NewContext(command.Context(), logger)
	if o.config.Poll <= 0 || o.config.HoldDown < 0 {
		return usagef("flag --poll is %s and --hold-down %s: the one has to be over 0, and the other not below", o.config.Poll, o.config.HoldDown)
	}
	if !isName(o.instance) {
		return usagef("flag --instance: a name has at most 63 letters, digits, dots, dashes and underscores")
	}
	options, err := o.options()
	if err != nil {
		return err
	}
	port, err := o.port.open(ctx, o.instance)
	if err != nil {
		return err
	}
	o.config.Observer = port.observer()
	keeper, err := kmsplugin.NewKeeper(backend, o.config)
	if err != nil {
		return errors.Join(err, port.close())
	}
	server, err := kmsplugin.Listen(ctx, o.listen, keeper, append(options, kmsplugin.WithObserver(port.observer()))...)
	if err != nil {
		return errors.Join(ofListening(ctx, "listen", err), port.close())
	}
	logger = logger.WithValues("endpoint", server.Endpoint())
	about, err := ready(ctx)
	if err == nil {
		err = o.port.write(port)
	}
	if err != nil {
		ended, end := context.WithCancel(ctx)
		end()
		return errors.Join(err, server.Serve(ended), port.close()) // which only releases the socket
	}
	port.serve(ctx, keeper)
	stop := keeper.Start(ctx)
	logger.Info("serving KMS v2", append(about, port.about()...)...)
	if err := errors.Join(server.Serve(ctx), stop(), port.close()); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

// isName reports whether a name is plain enough for a label and a line of the log; none is.
var isName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,63}$`).MatchString
