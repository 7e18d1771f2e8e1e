package kmsplugin

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// A guard stands around every call: it gives the Service a logger that knows
// the call, keeps a panic from taking the process, and with it every other
// call, down, has it end in time, and tells the observer.
type guard struct {
	logger   klog.Logger
	clock    clock.PassiveClock
	observer Observer
	running  atomic.Int64       // calls
	panics   map[string]*seldom // by method
	refusals seldom
}

func newGuard(logger klog.Logger, clock clock.PassiveClock, observer Observer) *guard {
	return &guard{logger: logger, clock: clock, observer: observer, panics: map[string]*seldom{"Status": {}, "Encrypt": {}, "Decrypt": {}}}
}

func (g *guard) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	g.running.Add(1)
	defer g.running.Add(-1)
	method := path.Base(info.FullMethod)
	logger := g.logger.WithValues("method", info.FullMethod)
	if named, ok := request.(interface{ GetUid() string }); ok {
		logger = logger.WithValues("uid", fmt.Sprintf("%.*s", MaxUID, named.GetUid()))
	}
	defer g.answered(method, g.began(), &err)
	answer, err = inTime(klog.NewContext(ctx, logger), func(ctx context.Context) (answer any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				if n := g.panics[method].now(g.clock.Now()); n > 0 {
					logger.Error(nil, "the service panicked", "cause", describe(cause), "at", callers(), "times", n)
				}
				answer, err = nil, status.Errorf(codes.Internal, "the plugin panicked in %s: see its log", info.FullMethod)
			}
		}()
		return next(ctx, request)
	})
	if err != nil {
		logger.V(2).Info("call failed", "err", err)
	}
	return answer, err
}

// began is when a call begins, if somebody wants to know.
func (g *guard) began() (now time.Time) {
	if g.observer.Answered != nil {
		now = g.clock.Now()
	}
	return now
}

func (g *guard) answered(method string, began time.Time, err *error) {
	if g.observer.Answered != nil {
		g.observer.Answered(Call{method, status.Code(*err), g.clock.Since(began)})
	}
}

// refuse tells of a client that was turned away.
func (g *guard) refuse() {
	if n := g.refusals.now(g.clock.Now()); n > 0 {
		g.logger.Info("clients were turned away: as many are connected as may be. Find out who connects, and never closes", "clients", n, "connected", maxConnections)
	}
	if g.observer.Refused != nil {
		g.observer.Refused()
	}
}

// guarded calls f, and makes an error of its panic: f runs on a goroutine of its own, where
// nothing else would.
func guarded[T any](ctx context.Context, f func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			klog.FromContext(ctx).Error(nil, "the back end panicked", "cause", describe(cause), "at", callers())
			err = status.Error(codes.Internal, "the back end of the plugin panicked: see its log")
		}
	}()
	return f(ctx)
}

// describe prints only what cannot hold key material: the runtime's own errors
// are text about indices and types; any other value is the Service's, and all
// that is safe to tell of it is its type.
func describe(cause any) string {
	if err, ok := cause.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a value of type %T", cause)
}

// callers lists the functions on the way to a panic, by name and line. A stack
// as the runtime prints it would show their arguments, bytes of keys among them.
func callers() []string {
	counters := make([]uintptr, 32)
	frames := runtime.CallersFrames(counters[:runtime.Callers(3, counters)])
	var names []string
	for {
		frame, more := frames.Next()
		names = append(names, fmt.Sprintf("%s:%d", frame.Function, frame.Line))
		if !more {
			return names
		}
	}
}
