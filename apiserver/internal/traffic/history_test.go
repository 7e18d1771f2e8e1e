package traffic

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatNoRegisterDoesIsFound(t *testing.T) {
	timeout := context.DeadlineExceeded
	for name, c := range map[string]struct {
		bad  bool
		done []operation
	}{
		"a read of what is there":        {false, []operation{{create, 1, done, 1, 2}, {get, 1, done, 3, 4}}},
		"a read of what is gone":         {true, []operation{{create, 1, done, 1, 2}, {update, 2, done, 3, 4}, {get, 1, done, 5, 6}}},
		"a read at the same time":        {false, []operation{{create, 1, done, 1, 2}, {update, 2, done, 3, 6}, {get, 1, done, 4, 5}}},
		"a read that goes back":          {true, []operation{{create, 1, done, 1, 2}, {update, 2, done, 3, 9}, {get, 2, done, 4, 5}, {get, 1, done, 6, 7}}},
		"a write that was perhaps done":  {false, []operation{{create, 1, done, 1, 2}, {update, 2, unknown, 3, math.MaxInt64}, {get, 1, done, 5, 6}, {get, 2, done, 7, 8}}},
		"and was perhaps not":            {false, []operation{{create, 1, done, 1, 2}, {update, 2, unknown, 3, math.MaxInt64}, {get, 1, done, 5, 6}}},
		"and cannot have been":           {true, []operation{{update, 2, unknown, 3, math.MaxInt64}, {get, 2, done, 5, 6}}},
		"one that comes back":            {true, []operation{{create, 1, done, 1, 2}, {remove, 0, done, 3, 4}, {get, 1, done, 5, 6}}},
		"made twice":                     {true, []operation{{create, 1, done, 1, 2}, {create, 2, done, 3, 4}}},
		"refused for one that was there": {false, []operation{{create, 1, done, 1, 2}, {create, 2, refused, 3, 4}, {remove, 0, done, 5, 6}, {update, 3, refused, 7, 8}}},
		"refused for none":               {true, []operation{{create, 2, refused, 3, 4}}},
	} {
		h := newHistory()
		h.of["a"] = c.done
		n, err := h.check()
		require.Equal(t, c.bad, err != nil, name)
		require.Equal(t, len(c.done), n)
	}
	require.Equal(t, unknown, outcomeOf(update, timeout))
}
