package stored_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/internal/stored"
)

// encode is an object as this library writes it.
func encode(o stored.Object) []byte {
	return append(append(stored.AppendDataHead(nil, len(o.Data)), o.Data...), o.Source.Tail()...)
}

// theirs is what kube-apiserver makes of a payload.
func theirs(payload []byte) (*kmstypes.EncryptedObject, error) {
	o := &kmstypes.EncryptedObject{}
	if err := proto.Unmarshal(payload, o); err != nil {
		return nil, err
	}
	return o, kmsv2.ValidateEncryptedObject(o)
}

func equal(t require.TestingT, want *kmstypes.EncryptedObject, got stored.Object) {
	require.Equal(t, want.EncryptedData, got.Data)
	require.Equal(t, want.KeyID, got.Source.KeyID)
	require.Equal(t, want.EncryptedDEKSource, got.Source.EncryptedDEK)
	require.Equal(t, int32(want.EncryptedDEKSourceType), int32(got.Source.Type))
	annotations := got.Source.AnnotationMap()
	require.Len(t, annotations, len(want.Annotations))
	for k, v := range want.Annotations {
		require.True(t, bytes.Equal(v, annotations[k]), "annotation %q", k)
	}
}

var objects = rapid.Custom(func(t *rapid.T) *kmstypes.EncryptedObject {
	name := rapid.StringMatching(`[a-z]{1,8}\.[a-z]{1,8}(\.[a-z]{1,8})?`)
	return &kmstypes.EncryptedObject{
		EncryptedData:          rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "data"),
		KeyID:                  rapid.StringN(1, 40, 1024).Draw(t, "key_id"),
		EncryptedDEKSource:     rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "DEK"),
		Annotations:            rapid.MapOfN(name, rapid.SliceOf(rapid.Byte()), 0, 4).Draw(t, "annotations"),
		EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType(rapid.Int32Range(0, 1).Draw(t, "type")),
	}
})

func TestObjectsMeanTheSameToKubeAPIServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := objects.Draw(t, "object")
		payload, err := proto.Marshal(want)
		require.NoError(t, err)
		got, err := stored.Parse(payload)
		require.NoError(t, err)
		equal(t, want, got)

		again, err := theirs(encode(got))
		require.NoError(t, err)
		equal(t, again, got)

		data, tail, ok := stored.Split(encode(got))
		require.True(t, ok)
		require.Equal(t, got.Data, data)
		require.Equal(t, got.Source.Tail(), tail)
		require.Len(t, encode(got), stored.SizeData(len(data))+len(tail))
	})
}

// Fields in any order, repeated and unknown ones: the same verdict, and the
// same meaning.
func TestOddEncodingsMeanTheSameToKubeAPIServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var payload []byte
		for range rapid.IntRange(0, 9).Draw(t, "fields") {
			payload = appendOdd(t, payload)
		}
		want, theirErr := theirs(payload)
		got, ourErr := stored.Parse(payload)
		require.Equal(t, theirErr == nil, ourErr == nil, "theirs: %v, ours: %v, of %x", theirErr, ourErr, payload)
		if theirErr == nil {
			equal(t, want, got)
		}
	})
}

func appendOdd(t *rapid.T, b []byte) []byte {
	number := protowire.Number(rapid.IntRange(1, 7).Draw(t, "number"))
	value := rapid.SampledFrom([][]byte{{}, []byte("1"), []byte("dek"), {0xff}, []byte("\n\x03a.b\x12\x01v"), []byte("\n\x03a.b"), []byte("\x12\x01v"), []byte("\n\x01b")}).Draw(t, "value")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), rapid.SampledFrom([]uint64{0, 1, 2, 1 << 32, 1<<32 + 1, 1<<64 - 1}).Draw(t, "varint"))
	case 1:
		return protowire.AppendFixed32(protowire.AppendTag(b, number, protowire.Fixed32Type), 7)
	case 2:
		return append(b, value...)
	default:
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
}

func TestLimits(t *testing.T) {
	base := func() *kmstypes.EncryptedObject {
		return &kmstypes.EncryptedObject{EncryptedData: []byte("data"), KeyID: "1", EncryptedDEKSource: []byte("dek")}
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	cases := map[string]struct {
		change func(*kmstypes.EncryptedObject)
		err    string
	}{
		"plain":                 {func(*kmstypes.EncryptedObject) {}, ""},
		"no data":               {func(o *kmstypes.EncryptedObject) { o.EncryptedData = nil }, "encrypted data is empty"},
		"no key_id":             {func(o *kmstypes.EncryptedObject) { o.KeyID = "" }, "key_id is empty"},
		"key_id at its limit":   {func(o *kmstypes.EncryptedObject) { o.KeyID = long(stored.MaxKeyID) }, ""},
		"key_id over its limit": {func(o *kmstypes.EncryptedObject) { o.KeyID = long(stored.MaxKeyID + 1) }, "longer than 1024"},
		"no DEK":                {func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSource = nil }, "encrypted DEK source is empty"},
		"DEK at its limit":      {func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSource = []byte(long(stored.MaxEncryptedDEKSource)) }, ""},
		"DEK over its limit": {func(o *kmstypes.EncryptedObject) {
			o.EncryptedDEKSource = []byte(long(stored.MaxEncryptedDEKSource + 1))
		}, "more than 1024"},
		"annotations at the limit": {func(o *kmstypes.EncryptedObject) {
			o.Annotations = map[string][]byte{"a.b": []byte(long(stored.MaxAnnotations - 3))}
		}, ""},
		"annotations over it": {func(o *kmstypes.EncryptedObject) {
			o.Annotations = map[string][]byte{"a.b": []byte(long(stored.MaxAnnotations - 2))}
		}, "more than 32768"},
		"annotation of no domain": {func(o *kmstypes.EncryptedObject) { o.Annotations = map[string][]byte{"ab": nil} }, "fully qualified"},
		"annotation with a dot":   {func(o *kmstypes.EncryptedObject) { o.Annotations = map[string][]byte{"a.b.": nil} }, ""},
		"unknown type":            {func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSourceType = 2 }, "unknown encryptedDEKSourceType: 2"},
		"negative type":           {func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSourceType = -1 }, "unknown encryptedDEKSourceType: -1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := base()
			c.change(o)
			payload, err := proto.Marshal(o)
			require.NoError(t, err)
			_, theirErr := theirs(payload)
			_, err = stored.Parse(payload)
			require.Equal(t, theirErr == nil, err == nil)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			}
			if len(o.EncryptedData) > 0 {
				_, err = stored.NewDEKSource(stored.SourceType(o.EncryptedDEKSourceType), o.KeyID, o.EncryptedDEKSource, o.Annotations)
				require.Equal(t, theirErr == nil, err == nil, "what is refused when read is refused when written")
			}
		})
	}
}

func TestASourceKeepsItsOwnCopies(t *testing.T) {
	dek, annotations := []byte("dek"), map[string][]byte{"a.b": []byte("v")}
	s, err := stored.NewDEKSource(stored.SourceDEK, "1", dek, annotations)
	require.NoError(t, err)
	before := s.Tail()
	clear(dek)
	clear(annotations["a.b"])
	require.Equal(t, before, s.Tail())
	require.Equal(t, []string{"a.b"}, slices.Collect(maps.Keys(s.AnnotationMap())))
}

// Callers may use a payload's memory again for another value.
func TestWhatWasReadKeepsItsOwnCopyOfTheSource(t *testing.T) {
	want, err := stored.NewDEKSource(stored.SourceSeed, "1", []byte("dek"), map[string][]byte{"a.b": []byte("v")})
	require.NoError(t, err)
	payload := encode(stored.Object{Data: []byte("data"), Source: want})
	got, err := stored.Parse(payload)
	require.NoError(t, err)
	clear(payload)
	require.Equal(t, want, got.Source)
	require.Equal(t, want.Tail(), got.Source.Tail())
}

func TestWhatIsWrittenIsWhatKubeAPIServerWouldWrite(t *testing.T) {
	for _, kind := range []stored.SourceType{stored.SourceDEK, stored.SourceSeed} {
		annotations := map[string][]byte{}
		for n := range 9 {
			source, err := stored.NewDEKSource(kind, "1", []byte("dek"), annotations)
			require.NoError(t, err)
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&kmstypes.EncryptedObject{
				EncryptedData: []byte("data"), KeyID: "1", EncryptedDEKSource: []byte("dek"),
				Annotations: annotations, EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType(kind),
			})
			require.NoError(t, err)
			require.Equal(t, want, encode(stored.Object{Data: []byte("data"), Source: source}))
			if n == 0 {
				require.Nil(t, source.AnnotationMap())
			} else {
				require.Equal(t, annotations, source.AnnotationMap())
			}
			annotations[fmt.Sprintf("%c.example.com", 'z'-n)] = []byte("value")
		}
	}
}

// Sources differ in their tails as soon as they differ in anything.
func TestATailIsOfOneSource(t *testing.T) {
	tails := map[string]bool{}
	for _, keyID := range []string{"1", "2"} {
		for _, dek := range []string{"dek", "dekk"} {
			for _, annotations := range []map[string][]byte{nil, {"a.b": nil}, {"a.b": []byte("v")}, {"a.c": []byte("v")}, {"a.b": nil, "a.c": nil}} {
				for _, kind := range []stored.SourceType{stored.SourceDEK, stored.SourceSeed} {
					s, err := stored.NewDEKSource(kind, keyID, []byte(dek), annotations)
					require.NoError(t, err)
					tails[string(s.Tail())] = true
				}
			}
		}
	}
	require.Len(t, tails, 2*2*5*2)
}

func TestAnswersOfAPluginAreRefusedAsWhatIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		keyID       string
		annotations map[string][]byte
		problem     string
	}{
		"a key_id of other bytes":         {keyID: "a\xffb", problem: "key_id is not valid UTF-8"},
		"an annotation of other bytes":    {keyID: "1", annotations: map[string][]byte{"a.\xff": nil}, problem: "not a fully qualified domain name"},
		"an annotation among good ones":   {keyID: "1", annotations: map[string][]byte{"a.b": nil, "z": nil}, problem: "not a fully qualified domain name"},
		"an annotation without a name":    {keyID: "1", annotations: map[string][]byte{"": nil}, problem: "not a fully qualified domain name"},
		"the keys of annotations count":   {keyID: "1", annotations: map[string][]byte{strings.Repeat("x.", stored.MaxAnnotations/2) + "y": nil}, problem: "annotations are 32769 bytes"},
		"the values of annotations count": {keyID: "1", annotations: map[string][]byte{"a.b": make([]byte, 32<<10-5), "c.d": nil}, problem: "annotations are 32769 bytes"},
	} {
		_, err := stored.NewDEKSource(stored.SourceDEK, test.keyID, []byte("dek"), test.annotations)
		require.ErrorContains(t, err, test.problem, name)
	}
}

// What is read is written back with the same meaning, and nothing panics.
func FuzzObject(f *testing.F) {
	for n := range 3 {
		annotations := map[string][]byte{}
		for i := range n {
			annotations[fmt.Sprintf("a%d.example.com", i)] = []byte("value")
		}
		payload, err := proto.Marshal(&kmstypes.EncryptedObject{
			EncryptedData: []byte("data"), KeyID: "1", EncryptedDEKSource: []byte("dek"),
			Annotations: annotations, EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType(n % 2),
		})
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		want, theirErr := theirs(payload)
		got, err := stored.Parse(payload)
		require.Equal(t, theirErr == nil, err == nil, "theirs: %v, ours: %v", theirErr, err)
		if err != nil {
			return
		}
		equal(t, want, got)
		again, err := stored.Parse(encode(got))
		require.NoError(t, err)
		require.Equal(t, got.Source.Tail(), again.Source.Tail())
		if data, tail, ok := stored.Split(payload); ok && len(data) > 0 && &data[0] == &got.Data[0] && bytes.Equal(tail, got.Source.Tail()) {
			require.Equal(t, payload, encode(got))
		}
	})
}
