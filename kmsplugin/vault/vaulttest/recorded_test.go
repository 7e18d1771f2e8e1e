package vaulttest_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

var update = flag.Bool("update", false, "record the answers of the real Vault that "+vaulttest.Program+" names")

const recording = "testdata/recorded.json"

// recorded is what was answered to a step.
type recorded struct {
	Step    string
	Request string
	Status  int
	Answer  any
}

// The fake is held to what a real Vault answered, and a real one to what was recorded.
func TestEveryAnswerIsAsRecorded(t *testing.T) {
	s := vaulttest.Start(t)
	got := play(t, s)
	if *update {
		require.True(t, s.IsReal(), "answers are recorded of a real Vault: set %s", vaulttest.Program)
		content, err := json.MarshalIndent(got, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(recording, append(content, '\n'), 0o644))
		return
	}
	content, err := os.ReadFile(recording)
	require.NoError(t, err)
	var want []recorded
	require.NoError(t, json.Unmarshal(content, &want))
	require.Equal(t, len(want), len(got), "record the new steps with -update")
	for i := range want {
		t.Run(want[i].Step, func(t *testing.T) { require.Equal(t, readable(t, want[i]), readable(t, got[i])) })
	}
}

func TestNothingSecretIsRecorded(t *testing.T) {
	content, err := os.ReadFile(recording)
	require.NoError(t, err)
	require.NotRegexp(t, regexp.MustCompile(`hvs\.[A-Za-z0-9]|vault:v\d+:[A-Za-z0-9]|eyJ[A-Za-z0-9]`), string(content))
	require.NotEmpty(t, content)
}

func readable(t *testing.T, r recorded) string {
	text, err := json.MarshalIndent(r, "", " ")
	require.NoError(t, err)
	return string(text)
}

// play asks everything of the script, in order.
func play(t *testing.T, s *vaulttest.Server) (all []recorded) {
	kept := map[string]string{"$root": s.RootToken}
	for _, st := range script(t, s) {
		body, _ := fill(map[string]any(st.body), kept).(map[string]any)
		path := fill(st.path, kept).(string)
		var headers []string
		for _, text := range st.headers {
			headers = append(headers, fill(text, kept).(string))
		}
		asks := cmp.Or(st.with, s)
		answer := asks.Do(st.method, path, fill(st.token, kept).(string), body, headers...)
		for name, of := range st.keep {
			kept[name] = textAt(t, st.name, answer.JSON, of)
		}
		var whole any
		if len(answer.Body) > 0 {
			require.NoError(t, json.Unmarshal(answer.Body, &whole), "%s: %s", st.name, answer.Body)
		}
		all = append(all, recorded{Step: st.name, Request: st.method + " " + st.path, Status: answer.Status, Answer: steady("", whole)})
		if st.after != nil {
			st.after()
		}
	}
	return all
}

// fill puts what was kept in the place of names like $token.
func fill(value any, kept map[string]string) any {
	switch value := value.(type) {
	case string:
		for name, text := range kept {
			value = strings.ReplaceAll(value, name, text)
		}
		return value
	case map[string]any:
		if value == nil {
			return nil
		}
		filled := map[string]any{}
		for name, inner := range value {
			filled[name] = fill(inner, kept)
		}
		return filled
	}
	return value
}

func textAt(t *testing.T, step string, value any, path string) string {
	for _, name := range strings.Split(path, ".") {
		object, is := value.(map[string]any)
		require.True(t, is, "%s: no %s", step, path)
		value = object[name]
	}
	text, is := value.(string)
	require.True(t, is, "%s: no %s", step, path)
	return text
}

// drawn are fields that are another each time.
var drawn = []string{
	"request_id", "client_token", "accessor", "id", "entity_id", "token", "secret_id", "secret_id_accessor", "role_id", "wrapped_accessor",
	"creation_time", "expire_time", "issue_time", "ttl", "server_time_utc", "cluster_name", "cluster_id", "build_date", "serial_number",
	"subject_key_id", "authority_key_id", "public_key", "echo_duration_ms", "clock_skew_ms", "service_account_uid", "last_renewal", "last_renewal_time",
}

var (
	sealed = regexp.MustCompile(`vault:v(\d+):[A-Za-z0-9+/=]+`)
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ][0-9:.]+( \+0000 UTC)?Z?`)
)

// steady is an answer with what is drawn taken out, and what kind of value it was put in.
func steady(field string, value any) any {
	if slices.Contains(drawn, field) && value != nil && value != "" {
		return fmt.Sprintf("<%T>", value)
	}
	switch value := value.(type) {
	case string:
		return moment.ReplaceAllString(sealed.ReplaceAllString(value, "vault:v$1:<ciphertext>"), "<time>")
	case []any:
		for i := range value {
			value[i] = steady("", value[i])
		}
	case map[string]any:
		for name, inner := range value {
			if number, is := inner.(float64); is && field == "keys" {
				inner = fmt.Sprintf("<%T>", number) // the time at which a version was made
			}
			value[name] = steady(name, inner)
		}
	}
	return value
}
