package faults

import (
	"context"
	"fmt"
	"math/rand/v2"

	"k8s.io/apiserver/pkg/storage/value"
)

// marker is in every plaintext, and nowhere else. Its length is a multiple of
// 3, so that its base64 is in that of the plaintext.
const marker = "plaintext of the simulation: "

// work does operations, one for each token.
func (w *world) work(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	for n := 0; ; n++ {
		if _, more := <-w.tokens; !more {
			return
		}
		w.restarting.RLock()
		if random.IntN(2) == 0 {
			w.writeOne(random.IntN(len(resources)), fmt.Sprintf("%d-%d", seed, n))
		} else {
			w.readOne(random)
		}
		w.restarting.RUnlock()
	}
}

func (w *world) writeOne(r int, name string) {
	key, plain := "/registry/"+resources[r].String()+"/"+name, marker+name
	v, began := w.view(), w.clock.Now()
	out, err := w.ResourceTransformers().TransformerForResource(resources[r]).
		TransformToStorage(context.Background(), []byte(plain), value.DefaultContext(key))
	if err != nil {
		w.operations.refused.Add(1)
		w.told(err)
		if w.mustWrite(r, v) {
			w.failf("a write of %s, which no plugin is needed for, failed: %v", resources[r], err)
		}
		return
	}
	w.operations.writes.Add(1)
	m := meansOf(out)
	if m.plugin >= 0 {
		healthy := w.machines[m.plugin].lastHealthy(w.clock.Now())
		if late := began.Sub(healthy) - writeWindow; late > 0 {
			w.failf("a write %v after the end of the window of plugin %d", late, m.plugin)
		}
	}
	w.remember(object{resource: r, key: key, value: out, plain: plain, means: m}, v)
}

func (w *world) readOne(random *rand.Rand) {
	w.mu.Lock()
	if len(w.objects) == 0 {
		w.mu.Unlock()
		return
	}
	o := w.objects[random.IntN(len(w.objects))]
	w.mu.Unlock()
	v := w.view()
	err := w.readBack(o)
	if err == nil {
		w.operations.reads.Add(1)
		return
	}
	w.operations.unread.Add(1)
	w.told(err)
	if w.mustRead(o, v) {
		w.failf("%s was readable, and its key was in memory: %v", o.key, err)
	}
}

// readBack reads o, and records it if it is not what was written.
func (w *world) readBack(o object) error {
	out, _, err := w.ResourceTransformers().TransformerForResource(resources[o.resource]).
		TransformFromStorage(context.Background(), o.value, value.DefaultContext(o.key))
	if err == nil && string(out) != o.plain {
		w.failf("%s was read as %q", o.key, out)
	}
	return err
}
