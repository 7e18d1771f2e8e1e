package faultplugin

import (
	"bytes"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// toBreak begins a text that is not UTF-8 on its way.
const toBreak = "to-break-"

// breaking is a codec that sends what no codec of Go would.
type breaking struct{ encoding.CodecV2 }

func (b breaking) Marshal(message any) (mem.BufferSlice, error) {
	data, err := b.CodecV2.Marshal(message)
	if err != nil || !bytes.Contains(data.Materialize(), []byte(toBreak)) {
		return data, err
	}
	broken := bytes.ReplaceAll(data.Materialize(), []byte(toBreak), bytes.Repeat([]byte{0xff}, len(toBreak)))
	data.Free()
	return mem.BufferSlice{mem.SliceBuffer(broken)}, nil
}
