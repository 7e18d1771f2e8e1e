package explore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/explore"
)

// steps are a world of numbers below ten, from each of which one may go on by one, or by two.
func steps(wrong int) func(int) []explore.Move[int] {
	return func(n int) (all []explore.Move[int]) {
		for _, by := range []int{1, 2} {
			if to := n + by; to < 10 {
				m := explore.Move[int]{Name: "go on", To: to}
				if to == wrong {
					m.Wrong = "it is there"
				}
				all = append(all, m)
			}
		}
		return all
	}
}

func TestAllThatCanBecomeOfAWorldIsFound(t *testing.T) {
	found := explore.All(0, steps(-1))
	require.Equal(t, 10, found.States())
	found.RequireSound(t, func(n int) bool { return n == 9 })
}

func TestWhatIsWrongIsFoundWithTheWayToIt(t *testing.T) {
	require.Equal(t, "it is there\n after go on, which followed\n  start\n  go on", explore.All(0, steps(3)).Wrong)
}

func TestWhatHasNoWayToAnEndIsStuck(t *testing.T) {
	trail, stuck := explore.All(0, steps(-1)).Stuck(func(n int) bool { return n == 8 })
	require.True(t, stuck, "nine is past it")
	require.Contains(t, trail, "start")
}
