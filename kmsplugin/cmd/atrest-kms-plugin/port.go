package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/telemetry"
)

// portOptions are the flags on what is served over HTTP.
type portOptions struct {
	address string
	file    string
}

// off is the address of no port.
const off = "off"

func (o *portOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "metrics-address", off, "where to serve metrics and health: 127.0.0.1:PORT (0: a free one), unix:///PATH, or off")
	flags.StringVar(&o.file, "metrics-address-file", "", "file to write the address to that --metrics-address got")
}

// port is what the options say, and does nothing if that is off.
type port struct {
	*telemetry.Port
	metrics *telemetry.Metrics
	file    string
	written os.FileInfo   // of the file
	ended   chan struct{} // closed when it serves no more; nil before
	stop    context.CancelFunc
}

// open binds it, for a plugin that may have a name.
func (o portOptions) open(ctx context.Context, instance string) (*port, error) {
	if o.address == off {
		if o.file != "" {
			return nil, usagef("flag --metrics-address-file: there is no address to write with --metrics-address off")
		}
		return &port{}, nil
	}
	opened, err := telemetry.Listen(ctx, o.address)
	if err != nil {
		return nil, ofListening(ctx, "metrics-address", err)
	}
	return &port{Port: opened, metrics: telemetry.NewMetrics(instance)}, nil
}

// write puts the address into the file as a whole: who waits for the file never reads half. Until this
// plugin has its socket the file may be that of another one, which serves.
func (o portOptions) write(p *port) error {
	if o.file == "" {
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(o.file), "."+filepath.Base(o.file)+".*")
	if err != nil {
		return usagef("flag --metrics-address-file: %w: name a file in a folder that this user may write to", err)
	}
	_, err = fmt.Fprintln(file, p.Address())
	written, statErr := file.Stat()
	err = errors.Join(err, statErr, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), o.file)
	}
	if err != nil {
		return usagef("flag --metrics-address-file: %w: name a file that is none yet, or an address", errors.Join(err, os.Remove(file.Name())))
	}
	p.file, p.written = o.file, written
	return nil
}

// observer counts for the port, if there is one.
func (p *port) observer() kmsplugin.Observer {
	if p.Port == nil {
		return kmsplugin.Observer{}
	}
	return p.metrics.Observer()
}

// about is for the log.
func (p *port) about() []any {
	if p.Port == nil {
		return nil
	}
	return []any{"metrics", p.Address()}
}

// serve answers until close. Whatever becomes of it, the plugin goes on.
func (p *port) serve(ctx context.Context, health telemetry.Health) {
	if p.Port == nil {
		return
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop, p.ended = stop, make(chan struct{})
	go func() {
		defer close(p.ended)
		if err := p.Serve(serving, p.metrics.Handler(health)); err != nil {
			klog.FromContext(ctx).Error(err, "metrics are not served any more")
		}
	}()
}

// close takes the port down, and the file that tells of it, unless that is another plugin's by now,
// which takes this one's place.
func (p *port) close() error {
	if p.Port == nil {
		return nil
	}
	var err error
	if p.ended == nil {
		err = p.Close()
	} else {
		p.stop()
		<-p.ended
	}
	if now, lost := os.Lstat(p.file); lost == nil && os.SameFile(now, p.written) {
		_ = os.Remove(p.file) // or somebody has
	}
	return err
}
