package plugin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBestSampleSaysMostOfThePluginAsItIsNow(t *testing.T) {
	var s Samples[string]
	present, former, refused := new(string), new(string), new(string)
	now := func(of ...*string) func(*string) bool {
		return func(w *string) bool {
			for _, p := range of {
				if p == w {
					return true
				}
			}
			return false
		}
	}
	require.Nil(t, s.Best(now()))
	s.Refused(refused)
	require.Same(t, refused, s.Best(now()), "better than nothing")
	s.Unwrapped(former, false)
	require.Same(t, former, s.Best(now()), "the plugin should do that again")
	require.Same(t, refused, s.Best(now(refused)), "under the KEK that it works with")
	s.Unwrapped(present, true)
	require.Same(t, present, s.Best(now(present, refused)))
	require.Same(t, former, s.Best(now(former)), "the plugin went back to its KEK")
	require.Nil(t, s.Good(now()))

	require.True(t, s.IsGood(present))
	require.True(t, s.IsGood(former))
	require.False(t, s.IsGood(refused))
	require.False(t, s.IsGood(nil))
}

func TestAForgottenSampleIsNotTriedAgainAndTheOthersAre(t *testing.T) {
	var s Samples[string]
	all := func(*string) bool { return true }
	present, former, refused := new(string), new(string), new(string)
	s.Unwrapped(present, true)
	s.Unwrapped(former, false)
	s.Refused(refused)

	s.Forget(nil)
	s.Forget(new(string))
	require.Same(t, present, s.Best(all))
	s.Forget(present)
	require.False(t, s.IsGood(present))
	require.Same(t, former, s.Best(all))
	s.Forget(former)
	require.False(t, s.IsGood(former))
	require.Same(t, refused, s.Best(all))
	s.Forget(refused)
	require.Nil(t, s.Best(all))
	require.False(t, s.IsGood(nil), "none is no sample")
}

func TestNoSampleIsLeftWhenAllAreCleared(t *testing.T) {
	var s Samples[string]
	s.Unwrapped(new(string), true)
	s.Unwrapped(new(string), false)
	s.Refused(new(string))
	s.Clear()
	require.Nil(t, s.Best(func(*string) bool { return true }))
}
