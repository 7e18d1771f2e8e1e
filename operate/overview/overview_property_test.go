package overview_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/operate/overview"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// anySeen is anything that can be told, and lies.
func anySeen(t *rapid.T) overview.Seen {
	s := overview.Seen{Began: now.Add(-time.Second), Ended: now, Told: map[string]rotation.Instance{}, Unnamed: map[string]string{}}
	rare := func(what string) bool { return rapid.IntRange(0, 19).Draw(t, what) == 0 }
	for n := range rapid.IntRange(0, 3).Draw(t, "apiservers") {
		name := fmt.Sprint("cp-", n)
		s.Apiservers = append(s.Apiservers, name)
		i := rotation.Instance{CheckedAt: now, ConfigHash: fileA, Complete: rapid.Bool().Draw(t, "complete"), Providers: map[string]rotation.Provider{}}
		switch {
		case rare("never"):
			i.CheckedAt = time.Time{}
		case rare("stale"):
			i.CheckedAt = now.Add(-time.Minute)
		case rare("ahead"):
			i.CheckedAt = now.Add(time.Minute)
		}
		if rare("ill") {
			i.Problem = "ill"
		}
		if rare("pending") {
			i.Pending = "pending"
		}
		i.ConfigHash = map[bool]string{true: rapid.SampledFrom([]string{"", fileB}).Draw(t, "file"), false: fileA}[rare("file")]
		for _, provider := range []string{"vault", "old"} {
			if rare("no " + provider) {
				continue
			}
			p := rotation.Provider{Healthy: !rare("sick"), KeyID: keyA, WroteKeyID: rapid.SampledFrom([]string{"", keyA}).Draw(t, "wrote")}
			if rare("key_id") {
				p.KeyID = rapid.SampledFrom([]string{"", keyB}).Draw(t, "names")
			}
			if rare("silent") {
				p.Healthy, p.Silent = false, true
			}
			if i.Complete {
				p.Told.Role = rapid.SampledFrom([]rotation.Role{rotation.RoleWrites, rotation.RoleWrites, rotation.RoleWrites, rotation.RoleReads}).Draw(t, "role")
			}
			if !rare("until") {
				p.Told.WritesUntil = now.Add(time.Minute)
			}
			i.Providers[provider] = p
		}
		if !rare("missing") {
			s.Told[name] = i
		}
	}
	if rare("unnamed") {
		s.Unnamed["other"] = "it has a Lease"
	}
	if rare("untold") {
		s.Untold = "no Leases"
	}
	return s
}

// well is what a fleet has to be to be well, said once more and in another way.
func well(s overview.Seen) bool {
	if len(s.Apiservers) == 0 || len(s.Unnamed) > 0 || s.Untold != "" {
		return false
	}
	first := s.Told[s.Apiservers[0]]
	for _, name := range s.Apiservers {
		i, spoken := s.Told[name], 0
		if i.CheckedAt != now || i.Problem != "" || i.Pending != "" || i.ConfigHash == "" || i.ConfigHash != first.ConfigHash {
			return false
		}
		for provider, p := range i.Providers {
			if p.Silent {
				continue
			}
			spoken++
			if !p.Healthy || p.KeyID == "" || p.WroteKeyID != "" && p.WroteKeyID != p.KeyID || p.Told.Role == rotation.RoleWrites && p.Told.WritesUntil.IsZero() {
				return false
			}
			for _, other := range s.Apiservers {
				its, has := s.Told[other].Providers[provider]
				if !has || its.Silent || its.KeyID != p.KeyID || its.Told.Role != "" && p.Told.Role != "" && its.Told.Role != p.Told.Role {
					return false
				}
			}
		}
		if spoken == 0 && !i.Complete {
			return false
		}
	}
	return true
}

func TestNothingIsCalledWellThatIsNot(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		s := anySeen(t)
		o := overview.Of(s)
		require.Equal(t, well(s), o.Verdict == overview.Well, o.Summary)
		if o.Verdict == overview.Well {
			found++
			require.Empty(t, o.Problems)
			return
		}
		worst := overview.Unknown
		for _, p := range o.Problems {
			require.NotEmpty(t, p.What)
			if p.Verdict == overview.NotWell {
				worst = overview.NotWell
			}
		}
		require.Equal(t, worst, o.Verdict)
		require.NotEmpty(t, o.Problems)
	})
	require.Positive(t, found, "the cases are all ill")
}

// In whatever order they are named, the verdict is the same.
func TestTheOrderOfTheApiserversDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySeen(t)
		before := overview.Of(s).Verdict
		s.Apiservers = rapid.Permutation(s.Apiservers).Draw(t, "order")
		require.Equal(t, before, overview.Of(s).Verdict)
	})
}
