package outage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/reload"
	"github.com/kube-atrest/atrest/transformer"
)

// told are the errors that docs/operations.md has, by a piece of their text.
var told = map[string]error{
	"KMS plugin is unavailable":            envelope.ErrUnavailable,
	"writes have stopped":                  envelope.ErrWritesStopped,
	"provider is closed":                   envelope.ErrClosed,
	"encryption at rest has ended":         reload.ErrClosed,
	"KMS plugin does not know the KEK":     envelope.ErrUnknownKEK,
	"no matching prefix found":             transformer.ErrNoProvider,
	"the KMS plugin does not take its DEK": envelope.ErrForeignDEK,
	"the value is damaged":                 transformer.ErrCorrupt,
}

// The page has every error, and each is answered as the page says.
func TestErrorsAreAnsweredAsThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## Outages and deletion of corrupt objects\n")
	require.True(t, found)
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (500|503, `Retry-After: 1`) \\| (done|refused) \\| [^|]+ \\|$")
	answers := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		answers[m[1]] = m[2:]
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(told)), slices.Collect(maps.Keys(answers)))

	deletable(t, true)
	for text, answers := range answers {
		require.ErrorContains(t, told[text], text)
		r := newRig(t, RESTOptions)
		r.stored("x")
		r.fails = fmt.Errorf("in the words of a provider: %w", told[text])
		require.Equal(t, answers[0], shown(r.calls("x")["get"]()), text)
		err := r.deleteUnread("x")
		require.Equal(t, answers[1] == "done", err == nil, "%s: %v", text, err)
		require.Equal(t, answers[1] == "done", !r.has("x"), text)
	}
}

func shown(err error) string {
	status := answer(err)
	if status.Details == nil || status.Details.RetryAfterSeconds == 0 {
		return fmt.Sprint(status.Code)
	}
	return fmt.Sprintf("%d, `Retry-After: %d`", status.Code, status.Details.RetryAfterSeconds)
}

func TestARequestThatEndsIsNoDamage(t *testing.T) {
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		require.True(t, is(fmt.Errorf("waiting for the DEK: %w", err)))
	}
}
