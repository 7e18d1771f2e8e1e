package kmsplugin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// mostOfACall bounds the time of each call, also of a client that would wait for ever. An
// apiserver waits 3 s, and what its EncryptionConfiguration may say instead is less by far.
const mostOfACall = time.Minute

var errNoAnswer = fmt.Errorf("the plugin has no answer within %s: %w", mostOfACall, context.DeadlineExceeded)

// inTime is the answer of a call, or an error once its caller waits no more, whatever the
// Service does: one that does not look at its ctx keeps a goroutine, and not the call.
func inTime(ctx context.Context, answer func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, mostOfACall, errNoAnswer)
	defer cancel()
	value, err := answered(ctx, answer, forget)
	if _, told := status.FromError(err); !told {
		return nil, toGRPC(err)
	}
	return value, err
}

// forget wipes the DEK of an answer that nobody waits for any more.
func forget(message any, _ error) {
	if late, ok := message.(*kmsapi.DecryptResponse); ok {
		clear(late.GetPlaintext())
	}
}
