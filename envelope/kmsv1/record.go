package kmsv1

import (
	"encoding/binary"
	"math"
	"strings"
)

const (
	lengthSize = 2              // bytes, of the length of the wrapped DEK
	maxWrapped = math.MaxUint16 // bytes, of a wrapped DEK
	minData    = 12 + 16        // bytes, the nonce and the tag of an empty value
)

// split takes a record apart, without a copy. ok is false when it cannot hold
// what its length says and a value beside.
func split(payload []byte) (wrapped, data []byte, ok bool) {
	if len(payload) < lengthSize {
		return nil, nil, false
	}
	n, rest := int(binary.BigEndian.Uint16(payload)), payload[lengthSize:]
	if len(rest) < n+minData {
		return nil, nil, false
	}
	return rest[:n:n], rest[n:], true
}

// head is all that stands before the data: prefix, length and wrapped DEK.
func head(prefix string, wrapped []byte) string {
	var b strings.Builder
	b.Grow(len(prefix) + lengthSize + len(wrapped))
	b.WriteString(prefix)
	b.WriteByte(byte(len(wrapped) >> 8))
	b.WriteByte(byte(len(wrapped)))
	b.Write(wrapped)
	return b.String()
}
