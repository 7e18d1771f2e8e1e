package main

import (
	"fmt"
	"runtime"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/suite"
)

const kib = 1 << 10

// check holds a book against the project's targets.
func check(book *measure.Book, o *options) []finding {
	j := &judgement{book: book, unit: o.unit}
	j.counterMode(o.scale)
	j.seedMode()
	j.annotations()
	j.localKeys()
	j.scaling(o.scale)
	j.memory(o.scale)
	j.cold(o.scale)
	j.reload()
	return j.all
}

// garbage is said of figures that pay for the garbage of each side.
const garbage = ", garbage collected"

func (j *judgement) counterMode(scale suite.Scale) {
	for _, op := range []struct{ what, name, param string }{
		{"KMS v2 write, counter mode", "Write", suite.OpWrite},
		{"KMS v2 warm read, counter mode", "Read", suite.OpRead},
	} {
		ours := measure.Name{Case: op.name, Params: suite.Size(kib), Side: suite.AtrestCounter}
		long := measure.Name{Case: "Sustained", Params: op.param, Side: suite.AtrestCounter}
		j.add(
			j.fasterAsTheyCome(op.what, ours),
			j.faster(op.what, ours, suite.KubeCounter, suite.Cipher, 15),
			j.faster(op.what, ours, suite.KubeCounterFixed, suite.Cipher, 15),
			j.slower(op.what, ours, suite.Cipher, 1.5),
			j.allocations(op.what, ours, suite.KubeCounter, 1),
			j.faster(op.what+garbage, long, suite.KubeCounter, suite.Cipher, 15),
			j.slower(op.what+garbage, long, suite.Cipher, 1.5),
		)
		for _, size := range scale.Sizes {
			ours.Params = suite.Size(size)
			f := j.slower(op.what+", "+suite.SizeName(size), ours, suite.Cipher, 1.1)
			if size < 16*kib {
				f.target, f.verdict = "", noTarget // what is done once for a value counts
			}
			if size != kib {
				j.add(f)
			}
		}
	}
}

func (j *judgement) seedMode() {
	write := measure.Name{Case: "Write", Params: suite.Size(kib), Side: suite.AtrestSeed}
	long := measure.Name{Case: "Sustained", Params: suite.OpWrite, Side: suite.AtrestSeed}
	j.add(
		j.faster("KMS v2 write, seed mode", write, suite.KubeSeed, suite.SeedCipher, 6),
		j.faster("KMS v2 write, seed mode", write, suite.KubeSeedFixed, suite.SeedCipher, 6),
		j.allocations("KMS v2 write, seed mode", write, suite.KubeSeed, 4),
		j.faster("KMS v2 write, seed mode"+garbage, long, suite.KubeSeed, suite.SeedCipher, 6),
	)
	read := measure.Name{Case: "ReadUnseen", Params: suite.Size(kib), Side: suite.AtrestSeed}
	j.add(
		j.fasterAsTheyCome("KMS v2 warm read, seed mode", measure.Name{Case: "Read", Params: suite.Size(kib), Side: suite.AtrestSeed}),
		j.faster("KMS v2 read, type 1, not read before", read, suite.KubeSeed, suite.SeedCipher, 6),
		j.faster("KMS v2 read, type 1, not read before", read, suite.KubeSeedFixed, suite.SeedCipher, 6),
	)
}

// annotations must cost nothing: within what a run differs from the next.
func (j *judgement) annotations() {
	const noise = 1.05
	for _, op := range []struct{ what, param string }{{"write", suite.OpWrite}, {"read", suite.OpRead}} {
		for _, mode := range []struct{ what, ours, theirs string }{
			{"counter mode", suite.AtrestCounter, suite.KubeCounter}, {"seed mode", suite.AtrestSeed, suite.KubeSeed},
		} {
			plain := measure.Name{Case: "Annotated", Params: op.param, Side: mode.ours}
			with := of(plain, suite.Annotated(mode.ours))
			f := finding{
				what: fmt.Sprintf("KMS v2 %s, %s, two annotations", op.what, mode.what), figure: "as long as without",
				got: j.ratio(with, plain), form: times, target: "at most " + times(noise),
			}.judge(func(x float64) bool { return x <= noise })
			theirs := of(plain, suite.Annotated(mode.theirs))
			if s := j.ratio(theirs, with); s.N > 0 {
				f.beside = fmt.Sprintf("faster than %s: %s", theirs.Side, times(s.Median))
			}
			j.add(f)
		}
	}
}

func (j *judgement) localKeys() {
	for _, kind := range suite.LocalKinds() {
		for _, op := range []struct{ what, param string }{{"write", suite.OpWrite}, {"read", suite.OpRead}} {
			ours := measure.Name{Case: "Local", Params: suite.Kind(kind, op.param), Side: suite.Atrest}
			what := kind + " " + op.what
			j.add(
				j.faster(what, ours, suite.Kube, suite.Cipher, 3),
				j.faster(what, ours, suite.KubeFixed, suite.Cipher, 3),
				j.slower(what, ours, suite.Cipher, 1.5),
				j.allocations(what, ours, suite.Kube, 2),
			)
		}
	}
}

// scaling compares what more goroutines bring with what they bring to the
// cipher. It is about the time that passes, whatever the unit of the rest.
func (j *judgement) scaling(scale suite.Scale) {
	const goal = 0.95
	for _, op := range []struct{ what, param string }{{"parallel writes", suite.OpWrite}, {"parallel reads", suite.OpRead}} {
		for _, n := range scale.Goroutines {
			if n == 1 {
				continue
			}
			name := measure.Name{Case: "Scaling", Params: op.param}
			cipher := j.gain(of(name, suite.Cipher), n)
			f := finding{
				what: fmt.Sprintf("%s, %d goroutines", op.what, n), figure: "of the cipher's own scaling",
				got: measure.Ratio(j.gain(of(name, suite.AtrestCounter), n), cipher), form: times, target: "at least " + times(goal),
			}.judge(func(x float64) bool { return x >= goal })
			if n > runtime.GOMAXPROCS(0) {
				f.target, f.verdict = "", noTarget // they share the processors
			}
			if theirs := measure.SpreadOf(j.gain(of(name, suite.KubeCounter), n)); theirs.N > 0 {
				f.beside = fmt.Sprintf("gain of %s: %s, of %s: %s", suite.Cipher, times(measure.SpreadOf(cipher).Median), suite.KubeCounter, times(theirs.Median))
			}
			j.add(f)
		}
	}
}

// gain is how much more is done by n goroutines than by one, round by round.
func (j *judgement) gain(n measure.Name, goroutines int) []float64 {
	return measure.Divide(
		j.book.Values(n.With(suite.Goroutines(1)), measure.NsPerOp),
		j.book.Values(n.With(suite.Goroutines(goroutines)), measure.NsPerOp))
}

// flat is by how much the heap may differ between two looks at it.
const flat = 256 << 10

func (j *judgement) memory(scale suite.Scale) {
	for _, mode := range []struct{ what, ours, theirs string }{
		{"counter mode", suite.AtrestCounter, suite.KubeCounter}, {"seed mode", suite.AtrestSeed, suite.KubeSeed},
	} {
		j.memoryOfWrites(scale, mode.what, mode.ours, mode.theirs)
		j.memoryOfReads(scale, mode.what, mode.ours, mode.theirs)
	}
}

func (j *judgement) memoryOfWrites(scale suite.Scale, mode, ours, theirs string) {
	last := measure.Name{Case: "LiveWrites", Params: suite.Writes(scale.Writes), Side: ours}
	first := measure.Name{Case: "LiveWrites", Params: suite.Writes(scale.Writes / suite.Checkpoints), Side: ours}
	f := finding{
		what: fmt.Sprintf("live memory, %d writes of one key, %s", scale.Writes, mode), figure: "growth after the first tenth",
		got: j.growth(last, first, 1), form: bytesForm, target: "flat (" + bytesForm(flat) + ")",
	}.judge(func(x float64) bool { return x <= flat })
	j.add(j.besideTheirs(f, of(last, theirs), suite.LiveBytes))
	if scale.Writes < suite.Full().Writes {
		return // too few for the library to leave garbage worth collecting: the next would be unfair
	}
	j.add(finding{
		what: f.what, figure: "last tenth faster than " + theirs, form: times,
		got: measure.Ratio(j.book.Values(of(last, theirs), measure.NsPerOp), j.book.Values(last, measure.NsPerOp)),
	})
}

func (j *judgement) memoryOfReads(scale suite.Scale, mode, ours, theirs string) {
	all := measure.Name{Case: "LiveObjects", Params: suite.AfterObjects, Side: ours}
	some := measure.Name{Case: "LiveObjects", Params: suite.AfterDEKs, Side: ours}
	per := float64(scale.Objects - scale.DEKs)
	f := finding{
		what: fmt.Sprintf("live memory, %d objects read, %s", scale.Objects, mode), figure: "for each object",
		got: j.growth(all, some, per), form: bytesForm, target: "nothing",
	}.judge(func(x float64) bool { return x <= flat/per })
	if s := j.growth(of(all, theirs), of(some, theirs), per); s.N > 0 {
		f.beside = fmt.Sprintf("%s: %s", theirs, bytesForm(s.Median))
	}
	j.add(f)
}

// growth is by how much more is live at a later point, for each of n.
func (j *judgement) growth(later, earlier measure.Name, n float64) measure.Spread {
	after, before := j.book.Values(later, suite.LiveBytes), j.book.Values(earlier, suite.LiveBytes)
	var grown []float64
	for i := range min(len(after), len(before)) {
		grown = append(grown, (after[i]-before[i])/n)
	}
	return measure.SpreadOf(grown)
}

func (j *judgement) cold(scale suite.Scale) {
	readers := measure.Name{Case: "ColdReaders", Params: suite.Readers(scale.Readers), Side: suite.AtrestCounter}
	f := finding{
		what: fmt.Sprintf("%d readers of one cold DEK", scale.Readers), figure: "Decrypt calls",
		got: measure.SpreadOf(j.book.Values(readers, suite.DecryptCalls)), form: count, target: "1",
	}.judge(func(x float64) bool { return x == 1 })
	j.add(j.besideTheirs(f, of(readers, suite.KubeCounter), suite.DecryptCalls))

	const goal = 10
	start := measure.Name{Case: "ColdStart", Side: suite.AtrestCounter}
	f = finding{
		what:   fmt.Sprintf("cold start, %d objects, %d DEKs, plugin takes %s", scale.Objects, scale.DEKs, scale.Delay),
		figure: "sooner than " + suite.KubeCounter, form: times, target: "at least " + times(goal),
		got: measure.Ratio(j.book.Values(of(start, suite.KubeCounter), measure.NsPerOp), j.book.Values(start, measure.NsPerOp)),
	}.judge(func(x float64) bool { return x >= goal })
	if calls := measure.SpreadOf(j.book.Values(start, suite.DecryptCalls)); calls.N > 0 {
		f.beside = fmt.Sprintf("Decrypt calls: %s", count(calls.Median))
	}
	j.add(f)
}

func (j *judgement) reload() {
	ours := measure.Name{Case: "Reload", Side: suite.AtrestCounter}
	for _, call := range []struct{ what, unit string }{{"DEKs unwrapped again", suite.DecryptCalls}, {"DEKs made anew", suite.EncryptCalls}} {
		f := finding{
			what: "reload that changes nothing", figure: call.what,
			got: measure.SpreadOf(j.book.Values(ours, call.unit)), form: count, target: "none",
		}.judge(func(x float64) bool { return x == 0 })
		j.add(j.besideTheirs(f, of(ours, suite.KubeCounter), call.unit))
	}
}
