package stored_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kube-atrest/atrest/internal/stored"
)

func TestBrokenEncodingsAreRefusedAsByKubeAPIServer(t *testing.T) {
	source, err := stored.NewDEKSource(stored.SourceDEK, "1", []byte("dek"), map[string][]byte{"a.b": []byte("v")})
	require.NoError(t, err)
	sound := encode(stored.Object{Data: []byte("data"), Source: source})
	field := func(n protowire.Number, kind protowire.Type, value ...byte) []byte {
		return append(protowire.AppendTag(nil, n, kind), value...)
	}
	annotation := func(entry ...byte) []byte {
		return field(4, protowire.BytesType, append([]byte{byte(len(entry))}, entry...)...)
	}
	for name, test := range map[string]struct {
		more    []byte
		problem string // "" if it means nothing
	}{
		"nothing":                          {},
		"an unknown varint":                {more: field(6, protowire.VarintType, 1)},
		"unknown bytes":                    {more: field(6, protowire.BytesType, 5, '\n', 3, 'a', '.', 'c')},
		"an unknown fixed32":               {more: field(6, protowire.Fixed32Type, 1, 2, 3, 4)},
		"an unknown group":                 {more: append(field(6, protowire.StartGroupType), field(6, protowire.EndGroupType)...)},
		"a field of another kind":          {more: field(2, protowire.VarintType, 1)},
		"another DEK of another kind":      {more: field(3, protowire.VarintType, 1)},
		"a type of another kind":           {more: field(5, protowire.Fixed32Type, 1, 0, 0, 0)},
		"data of another kind":             {more: field(1, protowire.VarintType, 0)},
		"annotations of another kind":      {more: field(4, protowire.VarintType, 1)},
		"an unknown field in annotations":  {more: annotation('\n', 3, 'a', '.', 'c', 3<<3, 1)},
		"an annotation's key of a kind":    {more: annotation('\n', 3, 'a', '.', 'c', 1<<3, 1)},
		"an annotation's value of a kind":  {more: annotation('\n', 3, 'a', '.', 'c', 2<<3, 1)},
		"half a tag":                       {[]byte{0x80}, "not a protobuf message"},
		"the field 0":                      {[]byte{0x02, 0x00}, "not a protobuf message"},
		"half a varint":                    {field(5, protowire.VarintType, 0x80), "field 5"},
		"half a fixed32":                   {field(6, protowire.Fixed32Type, 1, 2, 3), "field 6"},
		"half a fixed64":                   {field(6, protowire.Fixed64Type, 1, 2, 3), "field 6"},
		"half a key_id":                    {field(2, protowire.BytesType, 2, '1'), "field 2"},
		"a group without an end":           {field(6, protowire.StartGroupType), "field 6"},
		"an end without a group":           {field(6, protowire.EndGroupType), "field 6"},
		"a key_id of other bytes":          {field(2, protowire.BytesType, 1, 0xff), "key_id is not valid UTF-8"},
		"one that another follows":         {append(field(2, protowire.BytesType, 1, 0xff), field(2, protowire.BytesType, 1, '1')...), "key_id is not valid UTF-8"},
		"half an annotation":               {annotation('\n', 9), "annotation: field 1"},
		"an annotation of other bytes":     {annotation('\n', 1, 0xff), "annotation: annotation key is not valid UTF-8"},
		"one that is overwritten":          {annotation('\n', 1, 0xff, '\n', 3, 'a', '.', 'b'), "annotation: annotation key is not valid UTF-8"},
		"an annotation that is not a name": {annotation('\n', 1, 'a'), "not a fully qualified domain name"},
		"an annotation without anything":   {annotation(), "not a fully qualified domain name"},
	} {
		t.Run(name, func(t *testing.T) {
			payload := append(bytes.Clone(sound), test.more...)
			want, theirErr := theirs(payload)
			got, err := stored.Parse(payload)
			if test.problem != "" {
				require.Error(t, theirErr)
				require.ErrorContains(t, err, test.problem)
				return
			}
			require.NoError(t, theirErr)
			require.NoError(t, err)
			equal(t, want, got)
		})
	}
}

func TestAnObjectIsSplitOnlyWhereItsDataComeFirstAndWhole(t *testing.T) {
	for _, payload := range []string{"", "\x12\x01x", "\n", "\n\x02x", "\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		data, tail, ok := stored.Split([]byte(payload))
		require.False(t, ok, "%q", payload)
		require.Empty(t, data)
		require.Empty(t, tail)
	}
	data, tail, ok := stored.Split([]byte("\n\x01xtail"))
	require.True(t, ok)
	require.Equal(t, "x", string(data))
	require.Equal(t, "tail", string(tail))
}
