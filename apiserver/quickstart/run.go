package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errReported ends the process with 1 when the reason has been printed already.
var errReported = errors.New("a step did not hold")

// run shows every step and, on a terminal, serves until ctx ends. It leaves nothing
// behind but what --data asked for.
func run(ctx context.Context, o options, r *report) (err error) {
	f, err := openFolder(o.data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.remove()) }()
	logs, err := captureLogs(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	f.onFatal(r)

	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	s := &stage{folder: f, port: o.port, failed: failed}
	defer func() { err = errors.Join(err, r.during("stopping", s.strike)) }()

	r.line("%s\n", r.colour("1", "A kube-apiserver that encrypts at rest, with its etcd and its KMS plugin"))
	if err := s.show(ctx, r); err != nil {
		return err
	}
	if !r.terminal || o.exit {
		r.line("Everything held.")
		return nil
	}
	return s.serve(ctx, r)
}

// show runs the steps. The first that does not hold is reported and ends it.
func (s *stage) show(ctx context.Context, r *report) error {
	for _, step := range script(s.folder.takenUp) {
		start := time.Now()
		var seen []detail
		err := r.during(step.doing, func() (err error) {
			ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("it was not so within %s", stepTimeout))
			defer cancel()
			seen, err = step.run(ctx, s)
			return err
		})
		if errors.Is(context.Cause(ctx), context.Canceled) {
			r.line("Interrupted.")
			return errReported
		}
		if err != nil {
			r.fails(step.fact, err)
			s.folder.explain(r)
			return errReported
		}
		r.holds(step.fact, time.Since(start), seen)
	}
	return nil
}

// serve waits for Ctrl-C, or for the apiserver to end by itself.
func (s *stage) serve(ctx context.Context, r *report) error {
	r.line("Everything held. The apiserver serves until Ctrl-C; try")
	r.line("  kubectl --kubeconfig %s -n %s get secrets", s.cluster.Kubeconfig(), namespace)
	r.line("  kubectl --kubeconfig %s get --raw '%s'", s.cluster.Kubeconfig(), checkPath)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		r.fails("kube-apiserver serves until Ctrl-C", cause)
		s.folder.explain(r)
		return errReported
	}
	return nil
}
