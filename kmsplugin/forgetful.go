package kmsplugin

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	kmsapi "k8s.io/kms/apis/v2"
)

// forgetful is a codec that wipes the DEK of an answer once it is on its way. Copies that gRPC
// and the kernel have on that way are out of reach.
type forgetful struct{ encoding.CodecV2 }

func (f forgetful) Marshal(message any) (mem.BufferSlice, error) {
	data, err := f.CodecV2.Marshal(message)
	if answer, ok := message.(*kmsapi.DecryptResponse); ok {
		clear(answer.Plaintext)
	}
	return data, err
}
