package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	internalplugin "github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// dekSize is that of what apiservers have wrapped, in bytes.
const dekSize = 32

// What a call that failed leaves to do.
var remedies = map[envelope.Problem]string{
	envelope.Unreachable:  "start the plugin, or correct the endpoint",
	envelope.KMSAway:      "the plugin runs: look at the KMS behind it, and at the way there",
	envelope.TimedOut:     "look at the plugin and the KMS behind it, or raise the provider's timeout",
	envelope.Denied:       "give the plugin's identity the right to use the key",
	envelope.Throttled:    "raise the KMS's limit, or ask less often",
	envelope.KeyDisabled:  "enable the key in the KMS",
	envelope.Unhealthy:    "look at what the plugin says",
	envelope.BadVersion:   "use a plugin of KMS v2, or apiVersion: v1 for one of KMS v1",
	envelope.BadKeyID:     "correct the plugin: a key_id has 1 to 1024 bytes",
	envelope.BadAnswer:    "correct the plugin",
	envelope.Disagreement: "wait until the KMS has settled on one key, and check again",
	envelope.Failed:       "look at the plugin's log",
}

func failed(step string, problem envelope.Problem, err error) *Failure {
	return &Failure{Step: step, Problem: problem, Err: err, Text: fmt.Sprintf("%s: %v: %s", step, err, remedies[problem])}
}

func callFailed(step string, err error) *Failure {
	return failed(step, internalplugin.ProblemOf(err), internalplugin.Cut(err))
}

// checkV2 asks a plugin of KMS v2 for all that an apiserver will.
func (p *plugin) checkV2(ctx context.Context, o Options, r *Result) *Failure {
	client, err := o.Dial(p.endpoint(), p.kms.Timeout, nil)
	if err != nil {
		return failed("dial", envelope.Unreachable, err)
	}
	defer client.Close()
	_, f := p.ask(ctx, client, o, r)
	return f
}

// Ask asks a plugin that is to be written with for its Status and, unless the key_id has the
// hash known, has it wrap a random DEK and unwrap it. The sample is what it wrapped then, nil without.
func Ask(ctx context.Context, client envelope.Plugin, known string) (keyIDHash string, sample *Sample, f *Failure) {
	r := Result{KeyIDHash: known}
	sample, f = (&plugin{kind: config.KMSv2, writes: true}).ask(ctx, client, Options{}.withDefaults(), &r)
	return r.KeyIDHash, sample, f
}

// ask makes the calls, and holds the answers against each other. Where the result has the key_id
// that Status names already, that is enough.
func (p *plugin) ask(ctx context.Context, client envelope.Plugin, o Options, r *Result) (*Sample, *Failure) {
	var status envelope.Status
	var err error
	known := r.KeyIDHash
	r.Status, err = timed(o.Clock, func() (err error) { status, err = client.Status(ctx); return err })
	r.KeyIDHash = envelope.HashKeyID(status.KeyID)
	if f := p.ifWritten(statusFailure(status, err), r); f != nil || known != "" && known == r.KeyIDHash {
		return nil, f
	}
	dek := make([]byte, dekSize)
	if _, err := io.ReadFull(o.Random, dek); err != nil {
		return nil, failed("make a DEK", envelope.Failed, err)
	}
	var wrapped envelope.Wrapped
	r.Encrypt, err = timed(o.Clock, func() (err error) { wrapped, err = client.Encrypt(ctx, dek); return err })
	f := answerFailure(wrapped, status, dek, err)
	if f = p.ifWritten(f, r); f != nil || err != nil {
		return nil, f // without an answer there is nothing to try Decrypt with
	}
	sample := &Sample{Wrapped: wrapped, DEK: dek}
	r.Decrypt, _ = timed(o.Clock, func() error { f = sample.open(ctx, client); return nil })
	return sample, f
}

// statusFailure is what an apiserver would refuse of Status.
func statusFailure(s envelope.Status, err error) *Failure {
	if err != nil {
		return callFailed("status", err)
	}
	switch err := stored.ValidateKeyID(s.KeyID); {
	case s.Healthz != "ok": // one that is not well may lack the rest for that
		return failed("status", envelope.Unhealthy, fmt.Errorf("it reports healthz %.300q, not \"ok\"", s.Healthz))
	case err != nil:
		return failed("status", envelope.BadKeyID, err)
	case s.Version != "v2" && s.Version != "v2beta1":
		return failed("status", envelope.BadVersion, fmt.Errorf("it speaks version %.100q of the KMS API, not v2 or v2beta1", s.Version))
	}
	return nil
}

// ifWritten makes a warning of what is wrong with a plugin that is only read
// with, unless it is away altogether: such a plugin needs no more than Decrypt,
// and a KEK that may now only decrypt is how a rotation ends.
func (p *plugin) ifWritten(f *Failure, r *Result) *Failure {
	if f == nil || p.writes || f.Problem == envelope.Unreachable || f.Problem == envelope.KMSAway || f.Problem == envelope.TimedOut {
		return f
	}
	r.Warnings = append(r.Warnings, "nothing is written with it, so atrest does without this, but kube-apiserver is not ready until it works: "+f.Text)
	return nil
}

// answerFailure is what an apiserver would refuse of an answer to Encrypt.
func answerFailure(w envelope.Wrapped, s envelope.Status, dek []byte, err error) *Failure {
	if err != nil {
		return callFailed("encrypt", err)
	}
	if w.Reveals(dek) {
		return failed("encrypt", envelope.BadAnswer, errors.New("it gave the DEK back in the clear"))
	}
	if _, err := stored.NewDEKSource(stored.SourceDEK, w.KeyID, w.Ciphertext, w.Annotations); err != nil {
		return failed("encrypt", envelope.BadAnswer, fmt.Errorf("its answer cannot be stored: %w", err))
	}
	if s.KeyID != "" && w.KeyID != s.KeyID { // without one Status has failed already
		return failed("encrypt", envelope.Disagreement, fmt.Errorf("it used key_id %s and status names %s",
			envelope.HashKeyID(w.KeyID), envelope.HashKeyID(s.KeyID)))
	}
	return nil
}

func decryptFailure(got, want []byte, err error) *Failure {
	defer clear(got)
	if err != nil {
		return callFailed("decrypt", err)
	}
	if !bytes.Equal(got, want) {
		return failed("decrypt", envelope.BadAnswer, errors.New("it gave back another DEK than it was given"))
	}
	return nil
}

// checkV1 asks a plugin of KMS v1, which has neither Status nor key_id.
func (p *plugin) checkV1(ctx context.Context, o Options, r *Result) *Failure {
	client, err := o.DialV1(p.endpoint(), p.kms.Timeout, nil)
	if err != nil {
		return failed("dial", envelope.Unreachable, err)
	}
	defer client.Close()
	dek := make([]byte, dekSize)
	if _, err := io.ReadFull(o.Random, dek); err != nil {
		return failed("make a DEK", envelope.Failed, err)
	}
	var wrapped, unwrapped []byte
	r.Encrypt, err = timed(o.Clock, func() (err error) { wrapped, err = client.Encrypt(ctx, dek); return err })
	if err != nil {
		return p.ifWritten(callFailed("encrypt", err), r)
	}
	if len(wrapped) == 0 || bytes.Contains(wrapped, dek) {
		return failed("encrypt", envelope.BadAnswer, errors.New("it did not wrap the DEK"))
	}
	r.Decrypt, err = timed(o.Clock, func() (err error) { unwrapped, err = client.Decrypt(ctx, wrapped); return err })
	return decryptFailure(unwrapped, dek, err)
}
