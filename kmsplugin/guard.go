package kmsplugin

import (
	"context"
	"fmt"
	"runtime"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// A guard stands around every call: it gives the Service a logger that knows
// the call, and keeps a panic from taking the process, and with it every other
// call, down.
type guard struct {
	logger klog.Logger
}

func (g guard) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	logger := g.logger.WithValues("method", info.FullMethod)
	if named, ok := request.(interface{ GetUid() string }); ok {
		logger = logger.WithValues("uid", fmt.Sprintf("%.*s", MaxUID, named.GetUid()))
	}
	defer func() {
		if cause := recover(); cause != nil {
			logger.Error(nil, "the service panicked", "cause", describe(cause), "at", callers())
			answer, err = nil, status.Errorf(codes.Internal, "the plugin panicked in %s: see its log", info.FullMethod)
		}
	}()
	answer, err = next(klog.NewContext(ctx, logger), request)
	if err != nil {
		logger.V(2).Info("call failed", "err", err)
	}
	return answer, err
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
