package kmsplugin

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// apiVersion is what KEP-3299 has a stable plugin answer.
const apiVersion = "v2"

// healthy is the only healthz text that there is: what is wrong is an error.
const healthy = "ok"

// An adapter is a [Service] behind the gRPC interface: it translates, and lets
// nothing through that is outside the limits, in either direction.
type adapter struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	service Service
}

func (a *adapter) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	keyID, err := a.service.Status(ctx)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := checkKeyID(keyID); err != nil {
		return nil, badAnswer("Status", err)
	}
	return &kmsapi.StatusResponse{Version: apiVersion, Healthz: healthy, KeyId: keyID}, nil
}

func (a *adapter) Encrypt(ctx context.Context, request *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	if err := errors.Join(checkUID(request.GetUid()), checkPlaintext(request.GetPlaintext())); err != nil {
		return nil, badRequest("Encrypt", err)
	}
	defer clear(request.GetPlaintext()) // which the Service does not keep
	answer, err := a.service.Encrypt(ctx, request.GetUid(), request.GetPlaintext())
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := answer.check(); err != nil {
		return nil, badAnswer("Encrypt", err)
	}
	return &kmsapi.EncryptResponse{Ciphertext: answer.Ciphertext, KeyId: answer.KeyID, Annotations: answer.Annotations}, nil
}

func (a *adapter) Decrypt(ctx context.Context, request *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	sealed := Sealed{Ciphertext: request.GetCiphertext(), KeyID: request.GetKeyId(), Annotations: request.GetAnnotations()}
	if err := errors.Join(checkUID(request.GetUid()), sealed.check()); err != nil {
		return nil, badRequest("Decrypt", err)
	}
	plaintext, err := a.service.Decrypt(ctx, request.GetUid(), sealed)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := checkPlaintext(plaintext); err != nil {
		return nil, badAnswer("Decrypt", err)
	}
	return &kmsapi.DecryptResponse{Plaintext: plaintext}, nil
}

func badRequest(method string, err error) error {
	return status.Errorf(codes.InvalidArgument, "%s request: %s", method, err)
}

// badAnswer tells of a bug in the Service. The answer itself stays here, as it
// may be a plaintext.
func badAnswer(method string, err error) error {
	return status.Errorf(codes.Internal, "the plugin's own answer to %s is not one KMS v2 allows: %s: report it to the plugin's maintainers", method, err)
}
