package keys_test

import (
	"flag"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/explore"
	"github.com/kube-atrest/atrest/operate/keys"
)

var long = flag.Bool("long", false, "also search what takes minutes")

func mode(m keys.Mode) wish { return wish{Desired: wants(m, nil)} }

func kms(file string) wish { return wish{Desired: wants(keys.KMS, keyFile(file)), keyID: file} }

func refused(w wish) wish {
	w.refused = true
	return w
}

func named(w wish, keyID string) wish {
	w.keyID = keyID
	return w
}

func of(w wish, resources ...string) wish {
	w.Resources = resources
	return w
}

func strictly(w wish) wish {
	w.Strict = true
	return w
}

func (s scene) play(guard string) (*player, *explore.Search[town]) {
	p := newPlayer(s, guard)
	return p, explore.All(p.start(), p.moves)
}

// scenes are small worlds in which something happens, all of it in every order.
var scenes = map[string]scene{
	"a first key, crashes and late writes":         {wishes: []wish{mode(keys.AESGCM)}, crashes: true, lates: true, crowded: true},
	"a first key, and apiservers that die":         {wishes: []wish{mode(keys.AESGCM)}},
	"a mind that changes, and apiservers that die": {wishes: []wish{mode(keys.AESGCM), mode(keys.Identity)}, minds: 2, crowded: true},
	"a mind that changes":                          {wishes: []wish{mode(keys.AESGCM), mode(keys.Identity)}, minds: 2, calm: true},
	"a mind that changes three times":              {wishes: []wish{mode(keys.AESGCM), mode(keys.Identity), mode(keys.Secretbox)}, minds: 3, calm: true, crowded: true},
	"a mind that changes between plugins":          {wishes: []wish{kms("one"), kms("two")}, minds: 2, calm: true, crowded: true},
	"a mind that changes once between plugins":     {wishes: []wish{kms("one"), kms("two")}, minds: 1, calm: true, crashes: true, from: settled},
	"apiservers that are replaced":                 {wishes: []wish{mode(keys.AESGCM)}, leaves: 1, lates: true, calm: true, crowded: true},
	"one that is replaced":                         {wishes: []wish{mode(keys.AESGCM)}, leaves: 1, calm: true},
	"one that somebody changes, and that leaves":   {wishes: []wish{mode(keys.AESGCM)}, from: "confirm", meddles: 1, leaves: 1, departs: true, lates: true, calm: true, crowded: true},
	"a KEK that rotates, and another mode":         {wishes: []wish{kms("one"), mode(keys.AESGCM)}, minds: 1, turns: 1, calm: true, crowded: true},
	"a KEK that rotates, and another is wanted":    {wishes: []wish{kms("one"), mode(keys.AESGCM)}, minds: 1, turns: 1, calm: true, from: settled, crowded: true},
	"a KEK that rotates while it comes into use":   {wishes: []wish{kms("one")}, turns: 1, calm: true, crowded: true},
	"a KEK that rotates twice":                     {wishes: []wish{kms("one")}, turns: 2, calm: true, from: settled},
	"a record that is lost, and can be put back":   {wishes: []wish{mode(keys.AESGCM)}, loses: 1, kept: true, calm: true},
	"a record that is lost for a while":            {wishes: []wish{mode(keys.AESGCM)}, loses: 1, calm: true},
	"a record that cannot be read for a while":     {wishes: []wish{mode(keys.AESGCM)}, loses: 1, refused: true, unseen: true, calm: true},
	"resources that join and leave":                {wishes: []wish{mode(keys.AESGCM), of(mode(keys.AESGCM), "configmaps")}, minds: 2, calm: true, from: settled},
	"strictness that changes":                      {wishes: []wish{strictly(mode(keys.AESGCM)), mode(keys.AESGCM)}, minds: 3, calm: true, from: settled},
	"strictness, and one that is replaced":         {wishes: []wish{mode(keys.AESGCM), strictly(mode(keys.AESGCM))}, minds: 1, leaves: 1, calm: true, from: settled},
	"what somebody else configured":                {wishes: []wish{mode(keys.AESGCM)}, foreign: true, calm: true},
	"a plugin that is refused, and another one":    {wishes: []wish{kms("one"), refused(kms("two"))}, minds: 2, calm: true},
	"two plugins that name one key_id":             {wishes: []wish{kms("one"), named(kms("two"), "one")}, minds: 1, calm: true},
}

func TestWhateverHappensInATownEndsWell(t *testing.T) {
	explore.Long(t)
	for name, s := range scenes {
		if s.crowded && !*long {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, found := s.play("")
			require.Empty(t, found.Wrong)
			if !s.foreign && s.meddles == 0 { // or else people have to see to it
				found.RequireSound(t, p.rests)
			}
		})
	}
}

// without is a world that each guard is needed in. Two have tests of their own, as what
// they are against takes longer than such a world lasts.
var without = map[string]string{
	"refused":    "a record that cannot be read for a while",
	"backed":     "a record that is lost for a while",
	"foreign":    "what somebody else configured",
	"joined":     "one that somebody changes, and that leaves",
	"bound":      "a plugin that is refused, and another one",
	"everywhere": "a plugin that is refused, and another one",
	"same":       "two plugins that name one key_id",
	"overtake":   "a mind that changes",
	"busy":       "a KEK that rotates, and another is wanted",

	"resumed": "", // TestWhoWasAwayHoldsAnew
	"present": "", // TestPruneKeepsTheTenNewestAndWhatAnyoneHas
}

func TestSomethingGoesWrongWithoutAnyGuard(t *testing.T) {
	explore.Long(t)
	require.ElementsMatch(t, keys.Guards(), slices.Collect(maps.Keys(without)))
	for guard, name := range without {
		if name == "" {
			continue
		}
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			s, known := scenes[name]
			require.True(t, known, name)
			p, found := s.play(guard)
			wrong := found.Wrong
			if wrong == "" {
				wrong, _ = found.Stuck(p.rests)
			}
			require.NotEmpty(t, wrong, "nothing goes wrong without it in a world with %s", name)
		})
	}
}
