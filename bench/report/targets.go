package main

import (
	"fmt"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/bench/suite"
	"github.com/kube-atrest/atrest/internal/measure"
)

// target is one figure, and what it should be.
type target struct {
	what string // the operation
	kind
	measure.Name        // ours
	than         string // the other side
	goal         float64
	open         bool   // shown for comparison: there is no goal
	floor        string // the bare cipher, to say whether that reaches the goal
}

// targets are those of the project, for what a table has.
func targets(t *measure.Table) []target {
	all := append(counterMode(t), seedMode()...)
	all = append(all, aesgcm()...)
	all = append(all, parallel(t)...)
	return append(all, states(t)...)
}

func at(of, params, by string) measure.Name { return measure.Name{Case: of, Params: params, Side: by} }

const kib = "size=1024"

// counterMode has what atrest does by default, beside kube-apiserver by its own. Of large
// values the cipher is nearly all, while what is done once for a value counts with small
// ones.
func counterMode(t *measure.Table) (all []target) {
	for _, op := range []struct{ what, of, param string }{
		{"KMS v2 write, counter mode", "Write", "op=write"}, {"KMS v2 warm read, counter mode", "Read", "op=read"},
	} {
		ours, long := at(op.of, kib, side.AtrestCounter), at("Sustained", op.param, side.AtrestCounter)
		collected := op.what + ", garbage collected"
		all = append(all,
			target{op.what, faster, ours, side.Kube, 15, false, side.Cipher},
			target{op.what, faster, ours, side.KubeDEK, 0, true, side.Cipher},
			target{op.what, slower, ours, side.Cipher, 1.5, false, ""},
			target{op.what, allocations, ours, side.Kube, 1, false, ""},
			// The collector would have the other processor to itself: its time counts too.
			target{collected, faster.byCPU(), long, side.Kube, 15, false, side.Cipher},
			target{collected, slower.byCPU(), long, side.Cipher, 1.5, false, ""})
		for _, size := range t.Numbers(op.of, "size") {
			if size != 1<<10 {
				sized := at(op.of, fmt.Sprintf("size=%d", size), side.AtrestCounter)
				all = append(all, target{op.what + ", " + bytesForm(float64(size)), slower, sized, side.Cipher, 1.1, size < 16<<10, ""},
					target{op.what + ", " + bytesForm(float64(size)), faster, sized, side.Kube, 0, true, side.Cipher})
			}
		}
	}
	const older = "KMS v2 read, counter mode, DEK of an earlier start, value not read before"
	ours := at("ReadOlder", kib, side.AtrestCounter)
	return append(all,
		target{older, faster, ours, side.Kube, 0, true, side.Cipher},
		target{older, slower, ours, side.Cipher, 0, true, ""})
}

func seedMode() []target {
	const write, read, older = "KMS v2 write, seed mode", "KMS v2 warm read, seed mode", "KMS v2 read, seed mode, seed of an earlier start, value not read before"
	ours := at("Write", kib, side.AtrestSeed)
	return []target{
		{write, faster, ours, side.Kube, 6, false, side.CipherSeed},
		{write, slower, ours, side.CipherSeed, 0, true, ""},
		{write, allocations, ours, side.Kube, 4, false, ""},
		{write + ", garbage collected", faster.byCPU(), at("Sustained", "op=write", side.AtrestSeed), side.Kube, 6, false, side.CipherSeed},
		{read, faster, at("Read", kib, side.AtrestSeed), side.Kube, 0, true, side.CipherSeed},
		{older, faster, at("ReadOlder", kib, side.AtrestSeed), side.Kube, 6, false, side.CipherSeed},
	}
}

func aesgcm() (all []target) {
	for _, op := range []struct{ what, of string }{{"aesgcm write", "Write"}, {"aesgcm read", "Read"}} {
		ours := at(op.of, kib, side.AtrestAESGCM)
		all = append(all,
			target{op.what, faster, ours, side.KubeAESGCM, 3, false, side.CipherRandom},
			target{op.what, slower, ours, side.CipherRandom, 1.5, false, ""},
			target{op.what, allocations, ours, side.KubeAESGCM, 2, false, ""})
	}
	return all
}

// parallel compares what a goroutine on each processor brings with what it brings to the
// cipher, and has what is around a nonce, alone and contended.
func parallel(t *measure.Table) (all []target) {
	most := t.Last("Scaling", "goroutines")
	for _, op := range []string{"write", "read"} {
		what := fmt.Sprintf("parallel %ss, %d goroutines", op, most)
		ours := at("Scaling", fmt.Sprintf("op=%s/goroutines=%d", op, most), side.AtrestCounter)
		all = append(all, target{what, scaling, ours, side.Cipher, 0.95, most == 1, ""},
			target{what, slower, ours, side.Cipher, 0, true, ""},
			target{what, faster, ours, side.Kube, 0, true, side.Cipher})
	}
	for _, n := range t.Numbers("Nonce", "goroutines") {
		for _, ours := range []string{side.AtrestCounter, side.AtrestSeed} {
			what := fmt.Sprintf("a nonce and what is around it, %s, goroutines: %d", ours, n)
			all = append(all, target{what, takes, at("Nonce", fmt.Sprintf("goroutines=%d", n), ours), side.CipherRandom, 0, true, ""})
		}
	}
	return all
}

// flat is by how much the heap may differ between two looks at it.
const flat = 256 << 10

func states(t *measure.Table) (all []target) {
	writes := t.Last("Memory", "writes")
	for _, ours := range []string{side.AtrestCounter, side.AtrestSeed} {
		what := fmt.Sprintf("live memory, %s writes of one key, %s", thousands(float64(writes)), ours)
		all = append(all, target{what, growth, at("Memory", fmt.Sprintf("writes=%d", writes), ours), side.Kube, flat, false, ""})
	}
	objects, deks := t.Last("ColdStart", "objects"), t.Last("ColdStart", "deks")
	start := at("ColdStart", fmt.Sprintf("objects=%d/deks=%d", objects, deks), side.AtrestCounter)
	what := fmt.Sprintf("cold start, %s objects, %d DEKs, the plugin takes %s to unwrap", thousands(float64(objects)), deks, suite.Full().Delay)
	all = append(all, target{what, faster, start, side.Kube, 10, false, ""},
		target{what, decrypts, start, side.Kube, float64(deks) + 1, false, ""})
	for _, deks := range t.Numbers("ManyDEKs", "deks") {
		what := fmt.Sprintf("objects of %s DEKs, read again", thousands(float64(deks)))
		again := at("ManyDEKs", fmt.Sprintf("deks=%d", deks), side.AtrestCounter)
		all = append(all, target{what, decrypts, again, side.Kube, 0, deks > 4096, ""}, target{what, takes, again, side.Kube, 0, true, ""})
	}
	return all
}
