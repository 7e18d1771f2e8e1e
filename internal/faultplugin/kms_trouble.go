package faultplugin

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// trouble is what to answer while the keys are away.
func (p *KMS) trouble() error {
	p.mu.Lock()
	mended, tired, broken := p.mended, p.tired, p.broken
	p.mu.Unlock()
	switch {
	case mended == nil && !tired:
		return nil
	case p.flaws[UnknownTrouble]:
		return errors.New("the KMS is away")
	case p.flaws[OtherTrouble]:
		return status.Error(codes.NotFound, "there is no such key")
	case p.flaws[AllIsAway]:
		return status.Error(codes.Unavailable, "the KMS is away")
	}
	return broken
}

// troubleOf is what to answer a call.
func (p *KMS) troubleOf(ctx context.Context) error {
	err := p.trouble()
	if err != nil && p.flaws[LateInTrouble] {
		select {
		case <-ctx.Done():
		case <-time.After(SlowFor):
			return err
		}
		return status.FromContextError(ctx.Err()).Err()
	}
	if err != nil && p.flaws[WaitsInTrouble] {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

// statusInTrouble is how Status tells of it.
func (p *KMS) statusInTrouble(err error) (*kmsapi.StatusResponse, error) {
	if p.flaws[Hangs] {
		p.slots <- struct{}{}
		<-p.slots
	}
	if p.flaws[HidesThePile] {
		p.slots <- struct{}{}
		time.Sleep(SlowFor * 6 / 10)
		<-p.slots
	}
	again := p.alarmed.Add(1) > 1
	switch {
	case p.flaws[EmptyInTrouble]:
		return &kmsapi.StatusResponse{}, nil
	case p.flaws[TellsOnce] && again:
		return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: p.named()}, nil
	case p.flaws[TroubleAsText], p.flaws[TextAfterError] && again:
		return &kmsapi.StatusResponse{Version: "v2", Healthz: err.Error(), KeyId: p.named()}, nil
	}
	return nil, err
}
