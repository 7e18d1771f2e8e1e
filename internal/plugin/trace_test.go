package plugin

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestACallIsASpanOfATraceThatIsRecordedAndOfNoOther(t *testing.T) {
	socket := socketPath(t)
	serve(t, socket)
	c := dial(t, socket, never, nil)
	spans := tracetest.NewSpanRecorder()

	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	ctx, parent := tracer.Start(t.Context(), "LIST")
	call(ctx, c)
	require.Len(t, spans.Ended(), 1)
	span := spans.Ended()[0]
	require.Equal(t, "/x.Y/Z", span.Name())
	require.Equal(t, parent.SpanContext().SpanID(), span.Parent().SpanID())
	require.Equal(t, codes.Error, span.Status().Code)

	call(t.Context(), c)
	require.Len(t, spans.Ended(), 1)
}
