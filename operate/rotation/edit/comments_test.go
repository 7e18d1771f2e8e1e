package edit

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// commented are files with comments in places where they are easily lost.
var commented = map[string]string{
	"as in the documentation of Kubernetes": `---
#
# CAUTION: this is an example configuration.
#          Do not use this for your own cluster!
#
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources:
      - secrets
      - pandas.awesome.bears.example # a custom resource API
    providers:
      # This configuration does not provide data confidentiality.
      #
      - kms:
          apiVersion: v2
          name: old
          endpoint: unix:///a.sock
        # plain text, in other words NO encryption
      - identity: {} # plain text
      - aesgcm:
          keys:
            - name: key1
              secret: c2VjcmV0IGlzIHNlY3VyZQ==
            # and another
            - name: key2
              secret: dGhpcyBpcyBwYXNzd29yZA==
      # - secretbox:
      #     keys:
      #       - name: key1
  # events last
  - resources:
      - events
    providers:
      - identity: {} # do not encrypt Events
  # the end
# the very end
`,
	"a provider that is commented out": `resources:
- resources:
  - secrets
  providers:
  - kms:
      name: old
      endpoint: unix:///a.sock
  # - kms:
  #     name: older
  #     endpoint: unix:///older.sock

  # the reader of last resort
  - identity: {}
`,
	"windows": "# who\r\nresources:\r\n- resources: [secrets]\r\n  providers:\r\n  - kms: {name: old, endpoint: unix:///a.sock} # trailing\r\n  - identity: {}\r\n",
	"nothing behind it": `resources:
- resources: [secrets]
  providers:
  - kms:
      name: old
      endpoint: unix:///a.sock
  # add new ones above this line
# end
`,
	"of the neighbour alone": `resources:
- resources: [secrets]
  providers:
  - kms: {name: old, endpoint: unix:///a.sock}
  # the neighbour's
  - identity: {}
  # never remove identity
`,
}

func TestNoCommentOfANeighbourIsLost(t *testing.T) {
	for name, file := range commented {
		want := commentsOf(file)
		for _, stage := range []struct {
			what string
			made func([]byte) ([]byte, error)
			gone []string
		}{
			{"added", func(file []byte) ([]byte, error) { return add(file, "old", plugin) }, nil},
			{"swapped", func(file []byte) ([]byte, error) { return exchanged(file, "old", "new") }, nil},
			{"removed", func(file []byte) ([]byte, error) { return remove(file, "old") },
				[]string{"# This configuration does not provide data confidentiality.", "# trailing"}},
		} {
			out, err := stage.made([]byte(file))
			require.NoError(t, err, "%s: %s", name, stage.what)
			file = string(out)
			want = slices.DeleteFunc(want, func(c string) bool { return slices.Contains(stage.gone, c) })
			got := commentsOf(file)
			if stage.what == "removed" { // what is an empty comment's is nobody's
				empty := func(c string) bool { return c == "#" }
				want, got = slices.DeleteFunc(want, empty), slices.DeleteFunc(got, empty)
			}
			require.ElementsMatch(t, want, got, "%s: %s:\n%s", name, stage.what, file)
		}
	}
}

func TestWhatIsInAProviderGoesWithIt(t *testing.T) {
	out, err := remove([]byte(`resources:
- resources: [secrets]
  providers:
  # over it
  - kms: # at it
      # in it
      name: old # at the name
      endpoint: unix:///a.sock
  # below it

  # over the next
  - identity: {}
`), "old")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"# below it", "# over the next"}, commentsOf(string(out)))

	out, err = remove([]byte(`resources:
- resources: [secrets]
  providers:
  - identity: {}
  # over it
  - kms:
      name: old
  # below the last
`), "old")
	require.NoError(t, err)
	require.Equal(t, []string{"# below the last"}, commentsOf(string(out)))
}

func TestACommentThatCannotBeKeptIsARefusal(t *testing.T) {
	for line, file := range map[string]string{
		"line 1": "resources: [ # c2VjcmV0\n  {resources: [secrets], providers: [{kms: {name: old}}, {identity: {}}]}]\n",
		"line 3": "# the same\nresources:\n- providers: [ # the same\n  {kms: {name: old}}, {identity: {}}]\n",
	} {
		for what, change := range map[string]func([]byte) ([]byte, error){
			"add":    func(file []byte) ([]byte, error) { return add(file, "old", plugin) },
			"remove": func(file []byte) ([]byte, error) { return remove(file, "old") },
		} {
			_, err := change([]byte(file))
			require.ErrorContains(t, err, "cannot be kept: write what it stands in without braces and brackets, or take it out", what)
			require.Contains(t, err.Error(), line)
			require.NotContains(t, err.Error(), "c2VjcmV0")
		}
	}
}

func TestFlowStyleThatIsNotJSONStaysAsItIs(t *testing.T) {
	out, err := add([]byte("{resources: [\n  # of the platform team\n  {resources: [secrets], providers: [{kms: {name: old}}]}]}"), "old", Provider{Name: "new", Endpoint: "unix:///n.sock"})
	require.NoError(t, err)
	require.Equal(t, `{resources: [
    # of the platform team
    {resources: [secrets], providers: [{kms: {name: old}}, {kms: {apiVersion: v2, name: new, endpoint: 'unix:///n.sock'}}]}]}
`, string(out))
}

// What looks like a comment in a string of JSON is none.
func TestJSONHasNoComments(t *testing.T) {
	out, err := remove([]byte(`{"a": "b # c", "resources": [{"providers": [{"kms": {"name": "old"}}, {"identity": {}}]}], "n": [1, -2.5e3, true, null]}`), "old")
	require.NoError(t, err)
	require.JSONEq(t, `{"a": "b # c", "resources": [{"providers": [{"identity": {}}]}], "n": [1, -2.5e3, true, null]}`, string(out))
}
