package tally

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
)

var key value.Context = value.DefaultContext("/registry/key")

func TestAVisitIsWhatItsOperationWasGiven(t *testing.T) {
	v := Begin(key)
	require.Equal(t, key.AuthenticatedData(), value.Context(v).AuthenticatedData())
	require.Equal(t, v.Spot(), SpotOf(v))
	v.End()
	require.Nil(t, v.Context, "nothing is kept")
}

func TestOperationsAtOnceHaveSpotsOfTheirOwn(t *testing.T) {
	seen := map[Spot]bool{}
	for range 100 {
		v := &Visit{spot: idle.New().(*Visit).spot}
		require.False(t, seen[v.spot])
		seen[v.spot] = true
	}
}

// Two visits may come to the same line in the end, by their number or by other
// processors' ways: one of them goes on.
func TestAVisitThatMovesComesToEveryLine(t *testing.T) {
	v := Begin(key)
	defer v.End()
	seen := map[Spot]bool{}
	for range maxLines {
		seen[v.Spot()%maxLines] = true
		v.Move()
	}
	require.Len(t, seen, maxLines)
	require.Equal(t, v.Spot(), SpotOf(v))
}

func TestNoTwoVisitsShareAPairOfCacheLines(t *testing.T) {
	for _, shared := range []reflect.Type{reflect.TypeFor[Visit](), reflect.TypeFor[line](), reflect.TypeFor[row]()} {
		require.Zero(t, shared.Size()%128, "%s: its size is that to which the allocator and arrays align", shared)
	}
}
