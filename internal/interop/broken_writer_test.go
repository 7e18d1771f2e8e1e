package interop

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apiserver/pkg/storage/value"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// form is a stored form.
type form struct {
	kind   string
	source stored.SourceType // of KMS v2
}

var (
	formCBC  = form{kind: stored.AESCBC.Kind}
	formGCM  = form{kind: stored.AESGCM.Kind}
	formBox  = form{kind: stored.Secretbox.Kind}
	formV1   = form{kind: stored.KMSv1.Kind}
	formDEK  = form{kind: stored.KMSv2.Kind, source: stored.SourceDEK}
	formSeed = form{kind: stored.KMSv2.Kind, source: stored.SourceSeed}
)

// anyForm are mistakes that every form can have.
var anyForm = map[string]rewrite{
	"a letter of the prefix": func(d []byte) []byte { return bytes.Replace(d, []byte("k8s:enc:"), []byte("k8s:enk:"), 1) },
	"a newer version":        func(d []byte) []byte { return replaceIn(d, ":v", ":w") },
	"no version": func(d []byte) []byte {
		return bytes.Replace(bytes.Replace(d, []byte(":v1:"), []byte(":"), 1), []byte(":v2:"), []byte(":"), 1)
	},
	"no name": func(d []byte) []byte { return withoutName(d) },
	"no colon after it": func(d []byte) []byte {
		_, p := payloadOf(d)
		return slices.Delete(bytes.Clone(d), len(d)-len(p)-1, len(d)-len(p))
	},
	"a blank after it":       onPayload(func(p []byte) []byte { return append([]byte(" "), p...) }),
	"the last byte missing":  onPayload(func(p []byte) []byte { return p[:len(p)-1] }),
	"the first byte missing": onPayload(func(p []byte) []byte { return p[1:] }),
	"nothing after it":       onPayload(func([]byte) []byte { return nil }),
}

func replaceIn(data []byte, from, to string) []byte {
	return bytes.Replace(data, []byte(from), []byte(to), 1)
}

func withoutName(data []byte) []byte {
	f, payload := payloadOf(data)
	return append([]byte(f.Prefix), payload...)
}

// mistakes are one wrong byte, order or length each. mistakes of none are there
// to show that the sealing here is right but for them.
var mistakes = map[form]map[string]rewrite{
	formCBC: {
		"none":                  onPayload(func([]byte) []byte { return cbc([]byte(key("c", 32)), padding()) }),
		"IV last":               onPayload(func(p []byte) []byte { return rotate(p, 16) }),
		"no padding":            onPayload(func([]byte) []byte { return cbc([]byte(key("c", 32)), nil) }),
		"padding of zeros":      onPayload(func([]byte) []byte { return cbc([]byte(key("c", 32)), make([]byte, 16)) }),
		"padding of ANSI X9.23": onPayload(func([]byte) []byte { return cbc([]byte(key("c", 32)), append(make([]byte, 15), 16)) }),
		"padding counts from 0": onPayload(func([]byte) []byte { return cbc([]byte(key("c", 32)), bytes.Repeat([]byte{15}, 16)) }),
		"CTR":                   onPayload(func([]byte) []byte { return ctr([]byte(key("c", 32)), padding()) }),
	},
	formGCM: {
		"none":               onPayload(func([]byte) []byte { return gcm([]byte(key("g", 32)), nonce(12), aad) }),
		"etcd key left out":  onPayload(func([]byte) []byte { return gcm([]byte(key("g", 32)), nonce(12), nil) }),
		"etcd key without /": onPayload(func([]byte) []byte { return gcm([]byte(key("g", 32)), nonce(12), aad[1:]) }),
		"nonce of 16 bytes":  onPayload(func([]byte) []byte { return gcm([]byte(key("g", 32)), nonce(16), aad) }),
		"nonce last":         onPayload(func(p []byte) []byte { return rotate(p, 12) }),
		"tag first":          onPayload(func(p []byte) []byte { return append(p[:12:12], rotate(p[12:], len(p)-28)...) }),
		"tag of 12 bytes":    onPayload(func([]byte) []byte { return gcmTag([]byte(key("g", 32)), 12) }),
	},
	formBox: {
		"none":       onPayload(func([]byte) []byte { return box([]byte(key("s", 32))) }),
		"nonce last": onPayload(func(p []byte) []byte { return rotate(p, 24) }),
		"tag last":   onPayload(func(p []byte) []byte { return append(p[:24:24], rotate(p[24:], 16)...) }),
		"no nonce":   onPayload(func(p []byte) []byte { return p[24:] }),
	},
	formV1: {
		"none":                       onDataV1(func(dek []byte) []byte { return gcm(dek, nonce(12), aad) }),
		"etcd key left out":          onDataV1(func(dek []byte) []byte { return gcm(dek, nonce(12), nil) }),
		"nonce of 16 bytes":          onDataV1(func(dek []byte) []byte { return gcm(dek, nonce(16), aad) }),
		"AES-CBC":                    onDataV1(func(dek []byte) []byte { return cbc(dek, padding()) }),
		"the wrapped DEK is the key": onPayload(func(p []byte) []byte { return append(p[:46:46], gcm(p[2:34], nonce(12), aad)...) }),
		"length in little endian":    onPayload(func(p []byte) []byte { p[0], p[1] = p[1], p[0]; return p }),
		"length in four bytes":       onPayload(func(p []byte) []byte { return append([]byte{0, 0}, p...) }),
		"length in one byte":         onPayload(func(p []byte) []byte { return p[1:] }),
		"length one too many":        onPayload(func(p []byte) []byte { p[1]++; return p }),
		"length one too few":         onPayload(func(p []byte) []byte { p[1]--; return p }),
		"length of all":              onPayload(func(p []byte) []byte { p[1] = byte(len(p)); return p }),
	},
	formDEK: {
		"none":                       onData(func(dek []byte) []byte { return gcm(dek, nonce(12), aad) }),
		"etcd key left out":          onData(func(dek []byte) []byte { return gcm(dek, nonce(12), nil) }),
		"nonce of 16 bytes":          onData(func(dek []byte) []byte { return gcm(dek, nonce(16), aad) }),
		"nonce last":                 onObject(func(o *kmstypes.EncryptedObject) { o.EncryptedData = rotate(o.EncryptedData, 12) }),
		"the wrapped DEK is the key": onObject(func(o *kmstypes.EncryptedObject) { o.EncryptedData = gcm(o.EncryptedDEKSource[:32], nonce(12), aad) }),
		"marked as a seed":           onObject(func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSourceType = 1 }),
	},
	formSeed: {
		"none":             onData(func(seed []byte) []byte { return append(nonce(32), gcm(expand(seed, nonce(32)), nonce(12), aad)...) }),
		"info of 16 bytes": onData(func(seed []byte) []byte { return append(nonce(16), gcm(expand(seed, nonce(16)), nonce(12), aad)...) }),
		"info of 31 bytes": onData(func(seed []byte) []byte { return append(nonce(32), gcm(expand(seed, nonce(31)), nonce(12), aad)...) }),
		"info after nonce": onData(func(seed []byte) []byte {
			sealed := gcm(expand(seed, nonce(32)), make([]byte, 12), aad)
			return append(append(sealed[:12:12], nonce(32)...), sealed[12:]...)
		}),
		"etcd key left out": onData(func(seed []byte) []byte { return append(nonce(32), gcm(expand(seed, nonce(32)), nonce(12), nil)...) }),
		"info authenticated too": onData(func(seed []byte) []byte {
			return append(nonce(32), gcm(expand(seed, nonce(32)), nonce(12), append(nonce(32), aad...))...)
		}),
		"HKDF with its first step": onData(func(seed []byte) []byte {
			return append(nonce(32), gcm(must(hkdf.Key(sha256.New, seed, nil, string(nonce(32)), 32)), nonce(12), aad)...)
		}),
		"the seed is the key": onData(func(seed []byte) []byte { return append(nonce(32), gcm(seed, nonce(12), aad)...) }),
		"a key of 16 bytes": onData(func(seed []byte) []byte {
			return append(nonce(32), gcm(expand(seed, nonce(32))[:16], nonce(12), aad)...)
		}),
		"not marked": onObject(func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSourceType = 0 }),
	},
}

// anyObject are mistakes that both forms of KMS v2 can have.
var anyObject = map[string]rewrite{
	"a source type to come":   onObject(func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSourceType = 2 }),
	"no key_id":               onObject(func(o *kmstypes.EncryptedObject) { o.KeyID = "" }),
	"another key_id":          onObject(func(o *kmstypes.EncryptedObject) { o.KeyID += "'" }),
	"no annotations":          onObject(func(o *kmstypes.EncryptedObject) { o.Annotations = nil }),
	"another annotation":      onObject(func(o *kmstypes.EncryptedObject) { o.Annotations["b.example.com"] = nil }),
	"a byte of an annotation": onObject(func(o *kmstypes.EncryptedObject) { o.Annotations["a0.example.com"][0]++ }),
	"no wrapped DEK":          onObject(func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSource = nil }),
	"a byte of a wrapped DEK": onObject(func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSource[3]++ }),
	"key_id and DEK exchanged": onObject(func(o *kmstypes.EncryptedObject) {
		id := o.KeyID
		o.KeyID, o.EncryptedDEKSource = string(o.EncryptedDEKSource), []byte(id)
	}),
	"data in field 6":     onPayload(func(p []byte) []byte { p[0] = 6<<3 | 2; return p }),
	"length one too many": onPayload(func(p []byte) []byte { p[1]++; return p }),
	"length one too few":  onPayload(func(p []byte) []byte { p[1]--; return p }),
	"length in two bytes, big endian": onPayload(func(p []byte) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{p[0]}, uint16(p[1])), p[2:]...)
	}),
}

// unseen are other ways to write a KMS v2 object that every reader takes: a
// comparison that refused them would be worth as little as one that takes all.
var unseen = map[string]rewrite{
	"an unknown field": onPayload(func(p []byte) []byte {
		return protowire.AppendVarint(protowire.AppendTag(p, 99, protowire.VarintType), 1)
	}),
	"data last": onPayload(func(p []byte) []byte {
		_, tail, _ := stored.Split(p)
		return rotate(p, len(p)-len(tail))
	}),
	"data twice": onPayload(func(p []byte) []byte { return append([]byte{p[0], 1, 'x'}, p...) }),
}

// forms start a server of either side for each form, which write in the same
// form and so find nothing stale that the other wrote.
func forms(t testing.TB) (theirs, ours map[form]server) {
	plugin, endpoint := startStrict(t, "1")
	plugin.Set(func(b *faultplugin.Behaviour) { b.Annotations = annotated(2, 5) })
	v1 := startV1(t)
	theirs, ours = map[form]server{}, map[form]server{}
	for f := range mistakes {
		for _, k := range everyKindOn(v1, endpoint) {
			if k.name != f.kind {
				continue
			}
			theirs[f], ours[f] = theirSeed.start(t, fileOf(k, identity)), ourSeed.start(t, fileOf(k, identity))
			if f.source == stored.SourceDEK {
				theirs[f], ours[f] = theirDEK.start(t, fileOf(k, identity)), ourCounter.start(t, fileOf(k, identity))
			}
		}
	}
	return theirs, ours
}

// brokenWriter stores something else than it should.
type brokenWriter struct {
	value.Transformer
	rewrite rewrite
}

func (b brokenWriter) TransformToStorage(ctx context.Context, data []byte, at value.Context) ([]byte, error) {
	out, err := b.Transformer.TransformToStorage(ctx, data, at)
	if err != nil {
		return nil, err
	}
	return b.rewrite(out), nil
}

func (s server) broken(r rewrite) server {
	s.Transformer = brokenWriter{s.Transformer, r}
	return s
}

// Every mistake in what is written fails the comparison, with kube-apiserver as
// the reader and with this library, and nothing else does.
func TestTheSuiteCatchesWhatIsWrittenWrong(t *testing.T) {
	theirs, ours := forms(t)
	for f, writer := range ours {
		caught := func(name string, r rewrite) {
			require.Error(t, crosses(writer.broken(r), theirs[f], content, false), "%v: %s", f, name)
			require.Error(t, crosses(writer.broken(r), writer, content, false), "%v: %s", f, name)
			_, err := agree(theirs[f], writer, must(writer.broken(r).write(content)), here)
			require.NoError(t, err, "%v: %s", f, name)
		}
		passed := func(name string, r rewrite) {
			require.NoError(t, crosses(writer.broken(r), theirs[f], content, false), "%v: %s", f, name)
			require.NoError(t, crosses(writer.broken(r), writer, content, false), "%v: %s", f, name)
		}
		for name, r := range anyForm {
			caught(name, r)
		}
		for name, r := range mistakes[f] {
			if name == "none" {
				passed(name, r)
				continue
			}
			caught(name, r)
		}
		if f.kind != stored.KMSv2.Kind {
			continue
		}
		for name, r := range anyObject {
			caught(name, r)
		}
		for name, r := range unseen {
			passed(name, r)
		}
	}
}
