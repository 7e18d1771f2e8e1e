package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who reads that all is as it is wanted takes what is written for encrypted with what the file names first.
func TestAnApiserverThatMayHaveAnotherFileInEffectIsWaitedForAndOneThatDoesNotAnswerIsNot(t *testing.T) {
	bundle := wants(1, map[string]Key{})
	o := Observation{Now: epoch, Accepted: []Wanted{bundle}, File: File{Known: true, Hash: bundle.Config}, Fresh: time.Minute, Grace: grace}
	for name, row := range map[string]struct {
		a    Apiserver
		says string
	}{
		"has it":             {Apiserver{Config: bundle.Config, At: epoch, Since: epoch}, ""},
		"has another":        {Apiserver{Config: "another", At: epoch, Since: epoch}, "apiserver a has not taken the configuration file in place: it has another in effect"},
		"does not answer":    {Apiserver{Config: "another", At: epoch, Since: epoch, Problem: "it is away"}, ""},
		"was not asked":      {Apiserver{}, "apiserver a may have another configuration file in effect than the one in place: it was not asked yet"},
		"was asked long ago": {Apiserver{Config: bundle.Config, At: epoch.Add(-time.Hour), Since: epoch.Add(-time.Hour)}, "it has not told lately"},
		"was asked before it changed": {
			toldApiserver{Apiserver{Config: "another", At: epoch, Since: epoch}, 1}.of("a", 2), "it was not asked yet since the file changed"},
		"did not answer before it changed": {toldApiserver{Apiserver{At: epoch, Problem: "it is away"}, 1}.of("a", 2), ""},
	} {
		row.a.Name = "a"
		o.Apiservers = []Apiserver{row.a}
		waits := Decide(o).Waits
		if row.says == "" {
			require.Empty(t, waits, name)
			continue
		}
		require.Len(t, waits, 1, name)
		require.Contains(t, waits[0], row.says, name)
	}
}
