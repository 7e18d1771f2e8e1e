package kmsplugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// scripted answers what the test wants it to.
type scripted struct {
	status  func(context.Context) (string, error)
	encrypt func(context.Context, []byte) (kmsplugin.Sealed, error)
	decrypt func(context.Context, kmsplugin.Sealed) ([]byte, error)
}

func (s scripted) Status(ctx context.Context) (string, error) { return s.status(ctx) }

func (s scripted) Encrypt(ctx context.Context, _ string, plaintext []byte) (kmsplugin.Sealed, error) {
	return s.encrypt(ctx, plaintext)
}

func (s scripted) Decrypt(ctx context.Context, _ string, sealed kmsplugin.Sealed) ([]byte, error) {
	return s.decrypt(ctx, sealed)
}

// answering is a service that is well and gives these answers to every call.
func answering(sealed kmsplugin.Sealed, plaintext []byte, err error) scripted {
	return scripted{
		status:  func(context.Context) (string, error) { return sealed.KeyID, err },
		encrypt: func(context.Context, []byte) (kmsplugin.Sealed, error) { return sealed, err },
		decrypt: func(context.Context, kmsplugin.Sealed) ([]byte, error) { return plaintext, err },
	}
}

func dial(t *testing.T, service kmsplugin.Service) kmsapi.KeyManagementServiceClient {
	t.Helper()
	endpoint := plugintest.Endpoint(t)
	plugintest.Serve(t, endpoint, service)
	return plugintest.Dial(t, endpoint)
}

func sealed(change func(*kmsplugin.Sealed)) kmsplugin.Sealed {
	s := kmsplugin.Sealed{Ciphertext: []byte("wrapped"), KeyID: "key-1"}
	change(&s)
	return s
}

// limits are wrapped keys at and beyond every limit; "" means within.
var limits = []struct {
	name    string
	sealed  kmsplugin.Sealed
	problem string
}{
	{"plain", sealed(func(*kmsplugin.Sealed) {}), ""},
	{"longest", sealed(func(s *kmsplugin.Sealed) {
		s.Ciphertext = bytes.Repeat([]byte{1}, kmsplugin.MaxCiphertext)
		s.KeyID = strings.Repeat("k", kmsplugin.MaxKeyID)
		s.Annotations = map[string][]byte{"a.example": bytes.Repeat([]byte{1}, kmsplugin.MaxAnnotations-len("a.example"))}
	}), ""},
	{"most annotations", sealed(func(s *kmsplugin.Sealed) { s.Annotations = shortAnnotations() }), ""},
	{"no ciphertext", sealed(func(s *kmsplugin.Sealed) { s.Ciphertext = nil }), "ciphertext is empty"},
	{"long ciphertext", sealed(func(s *kmsplugin.Sealed) { s.Ciphertext = make([]byte, 1025) }), "ciphertext is 1025 bytes"},
	{"no key_id", sealed(func(s *kmsplugin.Sealed) { s.KeyID = "" }), "key_id is empty"},
	{"long key_id", sealed(func(s *kmsplugin.Sealed) { s.KeyID = strings.Repeat("k", 1025) }), "key_id is 1025 bytes"},
	{"long annotations", sealed(func(s *kmsplugin.Sealed) {
		s.Annotations = map[string][]byte{"a.example": make([]byte, 20000), "b.example": make([]byte, 20000)}
	}), "annotations are 40018 bytes"},
	{"annotation without a domain", sealed(func(s *kmsplugin.Sealed) {
		s.Annotations = map[string][]byte{"version": []byte("1")}
	}), `annotation name "version" is not a fully qualified domain name`},
	{"annotation in upper case", sealed(func(s *kmsplugin.Sealed) {
		s.Annotations = map[string][]byte{"Version.example": nil}
	}), "not a fully qualified domain name"},
}

// shortAnnotations are as many as there may be: what they are on their way is mostly protobuf's.
func shortAnnotations() map[string][]byte {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	all, left := map[string][]byte{}, kmsplugin.MaxAnnotations
	for _, first := range append([]string{""}, strings.Split(letters, "")...) {
		for _, second := range letters {
			for _, last := range letters {
				if name := fmt.Sprintf("%s%c.%c", first, second, last); len(name) <= left {
					all[name], left = nil, left-len(name)
				}
			}
		}
	}
	return all
}

func TestAnswersOutsideTheLimitsAreNotSent(t *testing.T) {
	for _, test := range limits {
		t.Run(test.name, func(t *testing.T) {
			client := dial(t, answering(test.sealed, []byte("dek"), nil))
			answer, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek"), Uid: "u"})
			if test.problem == "" {
				require.NoError(t, err)
				require.Equal(t, test.sealed.Ciphertext, answer.Ciphertext)
				require.Equal(t, test.sealed.KeyID, answer.KeyId)
				require.True(t, maps.EqualFunc(test.sealed.Annotations, answer.Annotations, bytes.Equal))
				return
			}
			require.Equal(t, codes.Internal, status.Code(err))
			require.ErrorContains(t, err, test.problem)
		})
	}
}

func TestRequestsOutsideTheLimitsDoNotReachTheService(t *testing.T) {
	for _, test := range limits {
		t.Run(test.name, func(t *testing.T) {
			reached := false
			service := answering(test.sealed, []byte("dek"), nil)
			service.decrypt = func(_ context.Context, got kmsplugin.Sealed) ([]byte, error) {
				reached = true
				if got.KeyID != test.sealed.KeyID || !bytes.Equal(got.Ciphertext, test.sealed.Ciphertext) {
					return nil, errors.New("not what was sent")
				}
				return []byte("dek"), nil
			}
			answer, err := dial(t, service).Decrypt(t.Context(), &kmsapi.DecryptRequest{
				Ciphertext: test.sealed.Ciphertext, KeyId: test.sealed.KeyID, Annotations: test.sealed.Annotations, Uid: "u",
			})
			require.Equal(t, test.problem == "", reached)
			if test.problem == "" {
				require.NoError(t, err)
				require.Equal(t, []byte("dek"), answer.Plaintext)
				return
			}
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.ErrorContains(t, err, test.problem)
		})
	}
}

func TestPlaintextAndUIDAreBounded(t *testing.T) {
	huge := make([]byte, kmsplugin.MaxPlaintext+1)
	client := dial(t, answering(limits[0].sealed, huge, nil))

	for name, request := range map[string]*kmsapi.EncryptRequest{
		"plaintext is empty":     {},
		"plaintext is 513 bytes": {Plaintext: huge},
		"uid is 257 bytes":       {Plaintext: []byte("dek"), Uid: strings.Repeat("u", 257)},
	} {
		_, err := client.Encrypt(t.Context(), request)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, name)
	}

	_, err := client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: []byte("c"), KeyId: "k"})
	require.Equal(t, codes.Internal, status.Code(err))
	require.ErrorContains(t, err, "plaintext is 513 bytes")
}

func TestAnOversizedRequestIsRefusedUnread(t *testing.T) {
	client := dial(t, answering(limits[0].sealed, []byte("dek"), nil))
	_, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: make([]byte, 1<<20)})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestStatusIsCheckedAndNamesTheAPIVersion(t *testing.T) {
	for keyID, problem := range map[string]string{
		"key-1":                   "",
		"":                        "key_id is empty",
		strings.Repeat("k", 1025): "key_id is 1025 bytes",
		"\xff":                    "key_id is not valid UTF-8",
	} {
		client := dial(t, scripted{status: func(context.Context) (string, error) { return keyID, nil }})
		answer, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
		if problem == "" {
			require.NoError(t, err)
			require.Equal(t, []string{"v2", "ok", keyID}, []string{answer.Version, answer.Healthz, answer.KeyId})
			continue
		}
		require.Equal(t, codes.Internal, status.Code(err))
		require.ErrorContains(t, err, problem)
	}
}

// kube-apiserver writes for ever under the key_id of a plugin that tells by a text alone that
// it is not well.
func TestTroubleIsAnErrorOfStatusWhateverTheKeyID(t *testing.T) {
	client := dial(t, scripted{status: func(context.Context) (string, error) {
		return "key-1", fmt.Errorf("%w: the HSM is offline", kmsplugin.ErrUnavailable)
	}})
	answer, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
	require.Nil(t, answer)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "the HSM is offline")
}

func TestErrorsBecomeTheCodesThatTheContractNames(t *testing.T) {
	for _, test := range []struct {
		err    error
		code   codes.Code
		reason string // of the ErrorInfo, if there is one
	}{
		{fmt.Errorf("file: %w", kmsplugin.ErrUnknownKey), codes.NotFound, "UNKNOWN_KEY"},
		{fmt.Errorf("tag: %w", kmsplugin.ErrInvalid), codes.InvalidArgument, "INVALID"},
		{fmt.Errorf("KEK: %w", kmsplugin.ErrKeyDisabled), codes.FailedPrecondition, "KEY_DISABLED"},
		{fmt.Errorf("login: %w", kmsplugin.ErrDenied), codes.PermissionDenied, "DENIED"},
		{fmt.Errorf("calls: %w", kmsplugin.ErrThrottled), codes.ResourceExhausted, "THROTTLED"},
		{fmt.Errorf("HSM: %w", kmsplugin.ErrUnavailable), codes.Unavailable, "UNAVAILABLE"},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded, ""},
		{fmt.Errorf("waiting: %w", context.Canceled), codes.Canceled, ""},
		{fmt.Errorf("remote: %w", status.Error(codes.PermissionDenied, "no")), codes.PermissionDenied, ""},
		{fmt.Errorf("%w: %w", kmsplugin.ErrUnavailable, status.Error(codes.PermissionDenied, "no")), codes.Unavailable, "UNAVAILABLE"},
		{errors.New("anything else"), codes.Unknown, ""},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			client := dial(t, answering(kmsplugin.Sealed{}, nil, test.err))
			_, fromStatus := client.Status(t.Context(), &kmsapi.StatusRequest{})
			_, fromEncrypt := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
			_, fromDecrypt := client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: []byte("c"), KeyId: "k"})
			for _, err := range []error{fromStatus, fromEncrypt, fromDecrypt} {
				require.Equal(t, test.code, status.Code(err))
				require.Contains(t, status.Convert(err).Message(), test.err.Error())
				var infos []any
				if test.reason != "" {
					infos = []any{test.reason, kmsplugin.ErrorDomain}
				}
				require.Equal(t, infos, infosOf(err))
			}
		})
	}
}

// infosOf are the reason and the domain of each ErrorInfo that an error carries.
func infosOf(err error) (all []any) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			all = append(all, info.GetReason(), info.GetDomain())
		}
	}
	return all
}

func TestTheTextOfAnErrorIsOneLineOfBoundedLength(t *testing.T) {
	long := "first\n\x1b[31msecond\xff" + strings.Repeat("x", 5000)
	for _, failed := range []error{errors.New(long), fmt.Errorf("%w: %s", kmsplugin.ErrUnavailable, long), status.Error(codes.Aborted, strings.ToValidUTF8(long, ""))} {
		client := dial(t, answering(kmsplugin.Sealed{}, nil, failed))
		_, fromStatus := client.Status(t.Context(), &kmsapi.StatusRequest{})
		_, fromEncrypt := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
		_, fromDecrypt := client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: []byte("c"), KeyId: "k"})
		for _, err := range []error{fromStatus, fromEncrypt, fromDecrypt} {
			text := status.Convert(err).Message()
			require.Len(t, text, kmsplugin.MaxError)
			require.Contains(t, text, "first  [31msecond")
			require.True(t, strings.HasSuffix(text, "xxx..."))
		}
	}
}

func TestAPanicIsAnErrorOfThatCallAndTellsNoSecret(t *testing.T) {
	var log bytes.Buffer // read only after the server has stopped
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	service := answering(limits[0].sealed, []byte("dek"), nil)
	service.encrypt = func(context.Context, []byte) (kmsplugin.Sealed, error) { panic("secret-key-bytes") }
	service.decrypt = func(_ context.Context, s kmsplugin.Sealed) ([]byte, error) {
		return s.Ciphertext[:len(s.Ciphertext)+cap(s.Ciphertext)], nil
	}
	endpoint := plugintest.Endpoint(t)
	server, err := kmsplugin.Listen(ctx, endpoint, service)
	require.NoError(t, err)
	stopping, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(stopping) }()
	client := plugintest.Dial(t, endpoint)

	_, err = client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek"), Uid: "uid-7"})
	require.Equal(t, codes.Internal, status.Code(err))
	require.ErrorContains(t, err, "panicked in /v2.KeyManagementService/Encrypt")
	require.NotContains(t, err.Error(), "secret-key-bytes")
	_, err = client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: []byte("c"), KeyId: "k"})
	require.Equal(t, codes.Internal, status.Code(err))
	_, err = client.Status(t.Context(), &kmsapi.StatusRequest{})
	require.NoError(t, err, "the server goes on")

	stop()
	require.NoError(t, <-ended)
	require.Contains(t, log.String(), "uid-7")
	require.Contains(t, log.String(), "a value of type string")
	require.Contains(t, log.String(), "TestAPanicIsAnErrorOfThatCall", "where it happened")
	require.Contains(t, log.String(), "slice bounds out of range")
	require.NotContains(t, log.String(), "secret-key-bytes")
}

func TestTheServiceSeesThatTheCallerHasGone(t *testing.T) {
	service := answering(limits[0].sealed, nil, nil)
	reached, ended := make(chan struct{}), make(chan struct{})
	service.encrypt = func(ctx context.Context, _ []byte) (kmsplugin.Sealed, error) {
		close(reached)
		<-ctx.Done()
		close(ended)
		return kmsplugin.Sealed{}, ctx.Err()
	}
	client := dial(t, service)
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() {
		_, err := client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
		called <- err
	}()
	<-reached
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-called))
	<-ended
}
