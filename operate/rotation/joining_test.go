package rotation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// At each step one of which nothing is known gets what reads all that may be stored by
// then, and writes what all others read. Package keys searches worlds in which it does.
func TestOneOfWhichNothingIsKnownJoins(t *testing.T) {
	at := func(step rotation.Step, asked bool) rotation.State {
		s := moving(t, []string{"a0", "a1", "a2", "a3"}, "old", "new")
		s.Move.Step, s.Move.Asked = step, asked
		return s
	}
	for _, tc := range []struct {
		step  rotation.Step
		asked bool
		want  rotation.Stage
	}{
		{"add", false, rotation.Before},
		{"add", true, rotation.Added},
		{"swap", true, rotation.Added},
		{"migrate", true, rotation.Swapped},
		{"prove", true, rotation.Swapped},
		{"remove", true, rotation.Swapped},
		{"confirm", true, rotation.Removed},
		{"done", true, rotation.Removed},
	} {
		require.Equal(t, tc.want, at(tc.step, tc.asked).Joining(), tc.step)
	}

	back, err := at("add", false).Abort([]string{"old"}, false)
	require.NoError(t, err)
	require.Equal(t, rotation.Added, back.Joining(), "nothing was written with the new one, and it goes")
	back, err = at("swap", true).Abort([]string{"old"}, false)
	require.NoError(t, err)
	require.Equal(t, rotation.Swapped, back.Joining(), "others may write with either")

	one, err := rotation.NewOnePlugin(rotation.Plan{Configs: map[string][]string{"a": {"a0"}}, Resources: []string{"secrets"}, Hold: rotation.Duration(time.Minute)}, []string{"kms"}, "")
	require.NoError(t, err)
	require.Equal(t, rotation.Before, one.Joining())
}
