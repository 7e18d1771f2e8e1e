package bundle

import "encoding/binary"

// fields are contents one after the other, each with its length in 8 bytes before it.
type fields []byte

func (f *fields) add(content []byte) {
	*f = binary.BigEndian.AppendUint64(*f, uint64(len(content)))
	*f = append(*f, content...)
}
