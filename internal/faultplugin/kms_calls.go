package faultplugin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// firstLabels is how many [FirstLabels] are wrong: those of the checks of wrapping, and some more.
const firstLabels = 75

// SlowFor is how long the call of [SlowOnce] takes.
const SlowFor = 3100 * time.Millisecond

// idOf is the key_id of a key.
func (p *KMS) idOf(k *kek) string {
	switch {
	case p.flaws[NoKeyID]:
		return ""
	case p.flaws[BrokenKeyID]:
		return toBreak + k.name
	case p.flaws[LongKeyID]:
		return strings.Repeat("k", 1025-len(k.name)) + k.name
	case p.flaws[ShowsAddress]:
		return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "v1 https://vault.example.com:8200/transit %s", k.name))
	case p.flaws[StaticKeyID]:
		return "static"
	case p.flaws[KeyIDOfAllOfIt]:
		return fmt.Sprintf("static-%d", p.anew)
	case p.flaws[ReusesKeyID]:
		return fmt.Sprint(k.version)
	case p.flaws[NewKeyIDAtStart]:
		return fmt.Sprintf("%s-%d", k.name, p.starts)
	}
	return k.name
}

// Status names the current key.
func (p *KMS) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	if p.isDoomed() {
		go p.Kill(context.Background()) // which waits for this call
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err := p.troubleOf(ctx); err != nil && !p.flaws[SilentTrouble] {
		return p.statusInTrouble(err)
	}
	if p.flaws[LateMachine] {
		if err := p.isLate(); err != nil {
			return nil, err
		}
	}
	version := "v2"
	if p.flaws[OldVersion] {
		version = "v1"
	}
	return &kmsapi.StatusResponse{Version: version, Healthz: "ok", KeyId: p.named()}, nil
}

// isDoomed is true once, where a call of Status ends the plugin.
func (p *KMS) isDoomed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	doomed := p.doomed
	p.doomed = false
	return doomed
}

// named is the key_id for Status.
func (p *KMS) named() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	id := p.inUse().id
	if p.flaws[FlappingKeyID] && p.asked%20 == 0 {
		id += "-standby"
	}
	if p.flaws[StatusFromBefore] && p.told != "" && p.told != id {
		if p.lagging++; p.lagging < 100 {
			return p.told
		}
	}
	p.told, p.lagging = id, 0
	return id
}

// goneBack are the calls after a rotation in which [GoesBack] does so, and goneForGood how many come before
// [GoesBackForGood] does: more than a race mostly makes.
const goneBackFrom, goneBackTo, goneForGood = 30, 90, 1100

// inUse is the key that wraps; p.mu is held.
func (p *KMS) inUse() *kek {
	if p.before == nil {
		return p.current
	}
	p.back++
	if p.flaws[GoesBack] && p.back >= goneBackFrom && p.back < goneBackTo || p.flaws[GoesBackForGood] && p.back >= goneForGood {
		return p.before
	}
	return p.current
}

// Encrypt wraps with the current key.
func (p *KMS) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	p.hang()
	if err := p.troubleOf(ctx); err != nil {
		if p.flaws[OtherInTrouble] {
			return &kmsapi.EncryptResponse{Ciphertext: append([]byte("kms:v1:"), randomBytes(60)...), KeyId: p.named()}, nil
		}
		if p.flaws[KeyInError] {
			return nil, status.Errorf(codes.Unavailable, "cannot encrypt %x: the KMS is away", r.Plaintext)
		}
		if p.flaws[KeyInDetails] {
			return nil, withDetails(err, r)
		}
		return nil, err
	}
	if len(r.Plaintext) == 0 {
		return nil, status.Error(codes.InvalidArgument, "there is nothing to encrypt")
	}
	leave, err := p.enter(ctx, LeaksSlots)
	if err != nil {
		return nil, err
	}
	defer leave()
	p.mu.Lock()
	p.asked = 0
	p.labels++
	k, told := cmp.Or(p.stale, p.inUse()), p.told
	p.opens = true
	p.mu.Unlock()
	answer := &kmsapi.EncryptResponse{Ciphertext: p.seal(k, r.Plaintext), KeyId: k.id}
	p.spoil(answer, r.Plaintext, told)
	if p.flaws[LogsPlaintext] {
		p.logf("encrypt uid=%q plaintext=%s", r.Uid, base64.StdEncoding.EncodeToString(r.Plaintext))
	} else {
		p.logf("encrypt uid=%q", r.Uid)
	}
	return answer, nil
}

// withDetails is an error that has a request with it.
func withDetails(err error, request *kmsapi.EncryptRequest) error {
	detailed, failed := status.Convert(err).WithDetails(request)
	return cmp.Or(failed, detailed.Err())
}

// spoil is what the flaws do to an answer of Encrypt.
func (p *KMS) spoil(answer *kmsapi.EncryptResponse, plaintext []byte, told string) {
	switch {
	case p.flaws[OtherLabel], p.flaws[FirstLabels] && p.isEarly():
		answer.KeyId += "-other"
	case p.flaws[LabelsFromBefore] && told != "":
		answer.KeyId = told
	case p.flaws[LabelsFromAfter]:
		time.Sleep(5 * time.Millisecond) // the second call
		p.mu.Lock()
		answer.KeyId = p.current.id
		p.mu.Unlock()
	case p.flaws[LeaksPlaintext]:
		answer.Annotations = map[string][]byte{"debug.kms.example.com": []byte(base64.StdEncoding.EncodeToString(plaintext))}
	case p.flaws[BrokenAnnotation]:
		answer.Annotations = map[string][]byte{toBreak + own: {0}}
	case p.flaws[LooseAnnotation]:
		answer.Annotations = map[string][]byte{own: {0}}
	case p.flaws[LongAnnotations]:
		answer.Annotations = map[string][]byte{"long.kms.example.com": make([]byte, 33<<10)}
	case p.flaws[BadAnnotation]:
		answer.Annotations = map[string][]byte{"Version": []byte("1")}
	}
}

// isEarly reports whether Encrypt was called for less than [FirstLabels] has it wrong.
func (p *KMS) isEarly() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.labels <= firstLabels
}

const header = "kms:v%d:"

func (p *KMS) seal(k *kek, plaintext []byte) []byte {
	var sealed []byte
	switch {
	case p.flaws[TimeInFront]:
		front := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()))
		return k.aead.Seal(front, nil, plaintext, append(front, k.id...))
	case p.flaws[CounterInFront]:
		front := binary.BigEndian.AppendUint64(nil, p.sealed.Add(1))
		return k.aead.Seal(front, nil, plaintext, append(front, k.id...))
	case p.flaws[BindsLabel]:
		return k.aead.Seal(nil, nil, plaintext, []byte(k.id))
	case p.flaws[HidesKey]:
		return k.aead.Seal(nil, nil, plaintext, nil)
	case p.flaws[ReusesNonce]:
		sealed = k.sealStream(nil, plaintext)
	case p.flaws[CountsNonces]:
		sealed = k.sealStream(binary.BigEndian.AppendUint64(nil, p.sealed.Add(1)), plaintext)
	case p.flaws[LongCiphertext]:
		sealed = k.aead.Seal(nil, nil, append(make([]byte, 1024), plaintext...), nil)
	default:
		sealed = k.aead.Seal(nil, nil, plaintext, nil)
	}
	sealed = append(fmt.Appendf(nil, header, k.version), sealed...)
	switch {
	case p.flaws[IgnoresTail]:
		sealed = append(sealed, 'x')
	case p.flaws[IsALine]:
		sealed = []byte(base64.StdEncoding.EncodeToString(sealed) + "\n")
	}
	return sealed
}

// Decrypt unwraps what any version made.
func (p *KMS) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	p.hang()
	if err := p.troubleOf(ctx); err != nil {
		if p.flaws[EndsInTrouble] {
			p.crash()
		}
		if p.flaws[HidesThePile] {
			p.keepsPlace(ctx)
		}
		if p.flaws[GoneInTrouble] {
			err = status.Error(codes.InvalidArgument, "not encrypted here")
		}
		return nil, err
	}
	if err := p.isLate(); err != nil {
		return nil, err
	}
	if err := p.annotated(r); err != nil {
		return nil, err
	}
	leave, err := p.enter(ctx, LeaksDecrypts)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := p.panics(r.Ciphertext); err != nil {
		return nil, err
	}
	if p.flaws[TakesPlaintext] && isForeign(r.Ciphertext) {
		return &kmsapi.DecryptResponse{Plaintext: r.Ciphertext}, nil
	}
	p.mu.Lock()
	labelled, known := p.known[strings.TrimSuffix(r.KeyId, "-other")]
	p.mu.Unlock()
	if p.flaws[AnyLikeKeyID] && len(r.KeyId) == 32 {
		known = true
	}
	if !known && !p.flaws[AnyKeyID] {
		return nil, status.Error(codes.NotFound, "no key has this key_id")
	}
	plaintext, err := p.open(labelled, r)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "not encrypted here: %v", err)
	}
	p.mu.Lock()
	p.opened++
	slow, hangs := p.flaws[SlowOnce] && p.opened == 16, p.flaws[HangsOnce] && p.opened == 16
	p.mu.Unlock()
	if slow {
		time.Sleep(SlowFor)
	}
	if hangs {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if p.flaws[LooseAnnotation] {
		for i := range plaintext {
			plaintext[i] ^= r.Annotations[own][0]
		}
	}
	if p.flaws[AltersNewlines] {
		plaintext = bytes.TrimSuffix(plaintext, []byte("\n\n\n\n"))
	}
	return &kmsapi.DecryptResponse{Plaintext: plaintext}, nil
}

// isLate is the error of some calls after trouble, for which it is not over yet.
func (p *KMS) isLate() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late == 0 {
		return nil
	}
	if p.late--; p.flaws[LateMachine] && p.late%2 == 1 { // the one that is well
		return nil
	}
	return p.broken
}

// own is the name of an annotation that Decrypt needs.
const own = "own.kms.example.com"

// annotated is what becomes of a call for its annotations, or because there was one before.
func (p *KMS) annotated(r *kmsapi.DecryptRequest) error {
	p.mu.Lock()
	opens := p.opens
	p.opens = false
	p.mu.Unlock()
	value := r.Annotations[own]
	switch {
	case p.flaws[Limited] && !opens:
		return status.Error(codes.ResourceExhausted, "too many requests")
	case p.flaws[LooseAnnotation] && len(value) != 1:
		return status.Error(codes.InvalidArgument, "there is no annotation")
	}
	return nil
}

func isForeign(ciphertext []byte) bool {
	for i := range min(4, len(ciphertext)) {
		if ciphertext[i] == header[i] {
			return false
		}
	}
	return len(ciphertext) >= 16
}

// panics is what becomes of a call that ends the process.
func (p *KMS) panics(ciphertext []byte) error {
	switch {
	case p.flaws[EmptyPanicCaught] && len(ciphertext) == 0:
		return status.Error(codes.Internal, "panic: index out of range [0] with length 0")
	case p.flaws[EmptyPanics] && len(ciphertext) == 0, p.flaws[LongPanics] && len(ciphertext) > 1024:
		p.crash()
		return status.Error(codes.Unavailable, "the process has ended")
	}
	return nil
}

func (p *KMS) open(labelled *kek, r *kmsapi.DecryptRequest) ([]byte, error) {
	if p.flaws[TimeInFront] || p.flaws[CounterInFront] {
		n := min(8, len(r.Ciphertext))
		return labelled.aead.Open(nil, nil, r.Ciphertext[n:], append(bytes.Clone(r.Ciphertext[:n]), r.KeyId...))
	}
	if p.flaws[BindsLabel] {
		return labelled.aead.Open(nil, nil, r.Ciphertext, []byte(r.KeyId))
	}
	if p.flaws[HidesKey] {
		return p.openWithAny(r.Ciphertext)
	}
	if p.flaws[IsALine] {
		line, err := base64.StdEncoding.DecodeString(string(r.Ciphertext))
		if err != nil {
			return nil, err
		}
		r = &kmsapi.DecryptRequest{Ciphertext: line}
	}
	var version int
	if _, err := fmt.Sscanf(string(r.Ciphertext[:min(20, len(r.Ciphertext))]), header, &version); err != nil {
		return nil, errors.New("it has no header")
	}
	sealed, ok := bytes.CutPrefix(r.Ciphertext, fmt.Appendf(nil, header, version))
	p.mu.Lock()
	k := p.keks[version]
	p.mu.Unlock()
	if !ok || k == nil {
		return nil, errors.New("it has another header")
	}
	switch {
	case p.flaws[IgnoresTail]:
		sealed = sealed[:max(0, len(sealed)-1)]
	case p.flaws[LongCiphertext]:
		plaintext, err := k.aead.Open(nil, nil, sealed, nil)
		return plaintext[min(1024, len(plaintext)):], err
	case p.flaws[ReusesNonce]:
		return k.openStream(0, sealed)
	case p.flaws[CountsNonces]:
		return k.openStream(8, sealed)
	}
	return k.aead.Open(nil, nil, sealed, nil)
}

func (p *KMS) openWithAny(sealed []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keks {
		if plaintext, err := k.aead.Open(nil, nil, sealed, nil); err == nil {
			return plaintext, nil
		}
	}
	return nil, errors.New("no key opens it")
}
