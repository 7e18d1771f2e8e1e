package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// A session is one run against one plugin. Checks run one at a time; what they call at
// once is safe for that.
type session struct {
	Target
	Options
	address string
	client  *client
	told    *told
	gone    bool // the plugin went, and was waited for
	silent  bool // it did not answer, and was waited for

	rotated  *rotations // what was seen of the rotations, once they were made
	troubled *trouble   // and of the trouble
}

func (s *session) close() { s.client.close() }

// patience is how long a call is waited for. It is longer than it may take, so that a
// slow plugin fails the check of that, and no other.
func (s *session) patience() time.Duration { return 4 * s.Timeout }

// sealed is a plaintext and what the plugin made of it.
type sealed struct {
	plaintext []byte
	*kmsapi.EncryptResponse
}

// status asks for the state, whatever it is.
func (s *session) status(ctx context.Context) (*kmsapi.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	answer, err := s.client.Status(ctx, &kmsapi.StatusRequest{})
	return answer, s.told.heard("Status", err)
}

// keyID asks for the key_id of a plugin that is well.
func (s *session) keyID(ctx context.Context) (string, error) {
	answer, err := s.status(ctx)
	switch {
	case err != nil:
		return "", err
	case answer.Healthz != "ok":
		return "", fmt.Errorf("the plugin is not well: healthz of Status is %.300q", answer.Healthz)
	case answer.KeyId == "":
		return "", errors.New("there is no key_id in the answer of Status")
	}
	s.told.hearsKeyID(answer.KeyId)
	return answer.KeyId, nil
}

func (s *session) encrypt(ctx context.Context, plaintext []byte) (*sealed, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	answer, err := s.client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: plaintext, Uid: s.told.uid()})
	if err := s.told.heard("Encrypt", err); err != nil {
		return nil, err
	}
	return &sealed{plaintext, answer}, nil
}

// wrap encrypts a new key of 32 bytes, as apiservers do.
func (s *session) wrap(ctx context.Context) (*sealed, error) { return s.encrypt(ctx, s.told.key()) }

// wraps are n.
func (s *session) wraps(ctx context.Context, n int) ([]*sealed, error) {
	var all []*sealed
	for range n {
		w, err := s.wrap(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

func (s *session) decrypt(ctx context.Context, w *kmsapi.EncryptResponse) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	answer, err := s.client.Decrypt(ctx, &kmsapi.DecryptRequest{
		Ciphertext: w.Ciphertext, KeyId: w.KeyId, Annotations: w.Annotations, Uid: s.told.uid(),
	})
	return answer.GetPlaintext(), s.told.heard("Decrypt", err)
}

// opens is an error unless w is decrypted to what it was.
func (s *session) opens(ctx context.Context, w *sealed) error {
	plaintext, err := s.decrypt(ctx, w.EncryptResponse)
	switch {
	case err != nil:
		return fmt.Errorf("what was encrypted under key_id %s does not open: %w", short(w.KeyId), err)
	case !bytes.Equal(plaintext, w.plaintext):
		return fmt.Errorf("what was encrypted under key_id %s opens to something else: %d bytes were encrypted, and %d came back", short(w.KeyId), len(w.plaintext), len(plaintext))
	}
	return nil
}

// within asks done again and again, for as long as the interval lasts.
func (s *session) within(ctx context.Context, done func() bool) (bool, error) {
	start := s.Clock.Now()
	for {
		if done() {
			return true, nil
		}
		if s.Clock.Since(start) >= s.Interval {
			return false, nil
		}
		if err := s.wait(ctx, s.Interval/600); err != nil {
			return false, err
		}
	}
}

func (s *session) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Clock.After(d):
		return ctx.Err()
	}
}

// becomesWell waits for a plugin that was restarted, mended or given another key.
func (s *session) becomesWell(ctx context.Context) error {
	var last error
	well, err := s.within(ctx, func() bool {
		if last = s.dial(ctx); last == nil {
			_, last = s.keyID(ctx)
		}
		return last == nil
	})
	if err != nil || well {
		return err
	}
	return fmt.Errorf("the plugin is not well %s later: %w", s.Interval, last)
}

// random is n bytes of nothing.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// short tells key_ids apart, which may be long and are another's business.
func short(keyID string) string { return hashed.Short(hashed.ID(keyID)) }
