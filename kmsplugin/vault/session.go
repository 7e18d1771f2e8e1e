package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// A session has a token, and is printed by no verb.
type session struct {
	redact.As
	transit *Transit
	client  *client
	held    *held
	asking  sync.Mutex // whether the token is good
}

// Versions reads the key.
func (s *session) Versions(ctx context.Context) (kmsplugin.Versions, error) {
	k, _, err := s.newest(ctx)
	if err != nil {
		return kmsplugin.Versions{}, err
	}
	s.warn(ctx, k)
	found := s.transit.config.versions(k)
	refused, err := s.verify(ctx, k)
	switch {
	case refused:
		return kmsplugin.Versions{}, s.explain(err)
	case err != nil:
		return found, fmt.Errorf("nothing is wrapped until it was seen that Vault binds a DEK to its key_id, and heeds the namespace: %w", err)
	}
	return found, nil
}

// newest reads the key. A state that is older than what was seen before, as a standby that lags
// tells it, is asked for once more, as another node may answer, and then refused. lags is that one did.
func (s *session) newest(ctx context.Context) (k *key, lags bool, err error) {
	for ; ; lags = true {
		if k, err = s.read(ctx); err != nil {
			return nil, lags, err
		}
		before, ok := s.transit.known.accept(k)
		switch {
		case ok:
			return k, lags, nil
		case lags:
			return nil, lags, s.explain(fmt.Errorf("%w: an older state of the key than was seen: the latest version is %d, and it was %d: a standby lags, or Vault was set back; if it was, restart the plugin to go on with what there is", kmsplugin.ErrUnavailable, k.latest, before.latest))
		}
	}
}

func (s *session) read(ctx context.Context) (*key, error) {
	var answer keyAnswer
	if err := s.ask(ctx, http.MethodGet, "keys", nil, &answer); err != nil {
		return nil, err
	}
	k, err := answer.key()
	if err != nil {
		return nil, s.explain(err)
	}
	return k, nil
}

// warn tells once of each version that was wrapped under and does not unwrap any more.
func (s *session) warn(ctx context.Context, k *key) {
	c := s.transit.config
	for _, v := range s.transit.known.passed(c, k) {
		klog.FromContext(ctx).Error(nil, "min_decryption_version was raised past a version that DEKs are wrapped under: what still needs it cannot be read",
			"version", v.Label, "keyID", v.KeyID(), "minDecryptionVersion", k.minDecrypt,
			"undo", fmt.Sprintf("vault write %s/keys/%s/config min_decryption_version=%s", c.Mount, c.Key, v.Label))
	}
	if k.leaves && s.transit.known.toldOnce() {
		klog.FromContext(ctx).Error(nil, "the key may leave Vault, as it is exportable or has plaintext backups: who has it reads what was ever wrapped, without Vault; Vault does not undo that: make another key, without those, and rotate to it",
			"key", c.Mount+"/keys/"+c.Key)
	}
}

// Wrap has exactly this version wrap, and takes from the answer which did. A number is not enough
// for that: a key that was deleted and made again, or restored from a backup, has other versions
// of the same numbers. So the key is read again, after it has wrapped. An answer that is older
// than what was seen of the key is none; one of a node that lags behind what nobody here has
// seen yet cannot be told from a true one.
func (s *session) Wrap(ctx context.Context, v kmsplugin.Version, dek, aad []byte) ([]byte, kmsplugin.Version, error) {
	var none kmsplugin.Version
	n, err := strconv.Atoi(v.Label)
	if v.Kind != kind || err != nil || n < 1 {
		return nil, none, fmt.Errorf("vault: %w: %s is no version of a Transit key", kmsplugin.ErrUnknownKey, v)
	}
	ciphertext, used, err := s.encrypt(ctx, n, dek, aad)
	if err != nil {
		return nil, none, err
	}
	k, _, err := s.newest(ctx)
	if err != nil {
		return nil, none, err
	}
	if by := s.transit.config.version(used, k.made[used]); by.KeyID() != v.KeyID() {
		return nil, by, nil
	}
	s.transit.known.wrappedUnder(v)
	return ciphertext, v, nil
}

// encrypt has a version encrypt, and tells which did.
func (s *session) encrypt(ctx context.Context, n int, plaintext, aad []byte) (ciphertext []byte, used int, err error) {
	var answer struct {
		Data struct {
			Ciphertext string `json:"ciphertext"`
		} `json:"data"`
	}
	if err := s.ask(ctx, http.MethodPost, "encrypt", encryption{plaintext, aad, n}, &answer); err != nil {
		return nil, 0, err
	}
	ciphertext = []byte(answer.Data.Ciphertext)
	if used, err = versionOf(ciphertext); err != nil {
		return nil, 0, s.explain(fmt.Errorf("%w: an answer that is no ciphertext: %w", kmsplugin.ErrUnavailable, err))
	}
	return ciphertext, used, nil
}

type encryption struct {
	Plaintext  []byte `json:"plaintext"`
	AAD        []byte `json:"associated_data"`
	KeyVersion int    `json:"key_version"`
}

// Unwrap asks only for what this version made, as the ciphertext says.
func (s *session) Unwrap(ctx context.Context, v kmsplugin.Version, ciphertext, aad []byte) ([]byte, error) {
	switch n, err := versionOf(ciphertext); {
	case err != nil:
		return nil, fmt.Errorf("vault: %w: a ciphertext of %d bytes: %w: it was damaged, or wrapped by something else", kmsplugin.ErrInvalid, len(ciphertext), err)
	case strconv.Itoa(n) != v.Label:
		return nil, fmt.Errorf("vault: %w: a ciphertext of version %d under the key_id of version %.32q: it was stored under another key_id than it was wrapped under", kmsplugin.ErrInvalid, n, v.Label)
	}
	dek, err := s.decrypt(ctx, ciphertext, aad)
	if errors.Is(err, kmsplugin.ErrInvalid) || errors.Is(err, kmsplugin.ErrUnknownKey) {
		return nil, s.doubted(ctx, v, err)
	}
	return dek, err
}

// doubted is err, that something does not authenticate or that there is no key, if the key itself
// bears it out. One that was deleted and made again, or restored from a backup, has other versions
// of the same numbers: what the former ones wrapped is not damaged. And what one node does not find
// is not gone while another one tells of it.
func (s *session) doubted(ctx context.Context, v kmsplugin.Version, err error) error {
	k, lags, unread := s.newest(ctx)
	if unread != nil {
		return fmt.Errorf("%v; and whether it is the key that wrapped it is not known: %w", err, unread)
	}
	now := s.transit.config.versions(k)
	is := slices.ContainsFunc(now.All, same(v))
	switch {
	case is && (lags || errors.Is(err, kmsplugin.ErrUnknownKey)):
		return fmt.Errorf("%w: %v; and yet the key is there: a node lags, or not all at this address are of one Vault", kmsplugin.ErrUnavailable, err)
	case is:
		return err
	case now.Withheld != nil:
		return s.explain(now.Withheld)
	}
	return s.explain(fmt.Errorf("%w: it has no %s any more: the key was deleted and made again, or restored from an older backup: restore one that has it", kmsplugin.ErrUnknownKey, v))
}

func (s *session) decrypt(ctx context.Context, ciphertext, aad []byte) ([]byte, error) {
	var answer struct {
		Data struct {
			Plaintext []byte `json:"plaintext"`
		} `json:"data"`
	}
	if err := s.ask(ctx, http.MethodPost, "decrypt", decryption{string(ciphertext), aad}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Data.Plaintext) == 0 {
		return nil, s.explain(fmt.Errorf("%w: an answer without a plaintext: is this Vault?", kmsplugin.ErrUnavailable))
	}
	return answer.Data.Plaintext, nil
}

type decryption struct {
	Ciphertext string `json:"ciphertext"`
	AAD        []byte `json:"associated_data"`
}

// ask asks for something of the key. Each of them may be asked twice: none changes anything.
func (s *session) ask(ctx context.Context, method, verb string, body, out any) error {
	c := s.transit.config
	err := s.client.ask(ctx, request{
		method: method, path: c.Mount + "/" + verb + "/" + c.Key, namespace: c.Namespace, token: s.held.secret, body: body, safe: true,
		hasDEK: verb != "keys",
	}, out)
	if errors.Is(err, kmsplugin.ErrDenied) {
		return s.denied(ctx, err)
	}
	return err
}

// denied says whether it is the token that is no good, which Vault does not tell apart from a
// right that is missing. If it is, this session is over.
func (s *session) denied(ctx context.Context, err error) error {
	if !s.held.isLost() && s.asking.TryLock() {
		defer s.asking.Unlock()
		switch _, lookup := s.transit.config.lookUp(ctx, s.client, s.held.secret); {
		case lookup == nil:
			return fmt.Errorf("%w; the token is good, so it is the policy: compare it with what \"atrest-kms-plugin vault policy\" prints", err)
		case errors.Is(lookup, kmsplugin.ErrDenied):
			s.held.lose()
		}
	}
	if s.held.isLost() {
		return fmt.Errorf("%w; the token is no good any more, and the plugin logs in anew", err)
	}
	return err
}

func (s *session) explain(err error) error {
	c := s.transit.config
	return fmt.Errorf("vault at %s: %s/keys/%s: %w", c.Address, c.Mount, c.Key, err)
}

// Renew renews the token until that is over.
func (s *session) Renew(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	err := keeping{
		clock: s.transit.config.Clock, lease: s.held.leased(), own: s.held.own, lost: s.held.lost, renew: s.renew,
		warn: func(text string, left time.Duration, err error) { logger.Error(err, text, "left", left) },
	}.run(ctx)
	if ctx.Err() == nil {
		s.held.end()
		logger.Info("another token is needed", "because", err.Error())
	}
	return err
}

// patience is how long one renewal, or the end of a token, may take.
const patience = 10 * time.Second

func (s *session) renew(ctx context.Context) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var answer authAnswer
	err := s.client.ask(ctx, request{
		method: http.MethodPost, path: "auth/token/renew-self", namespace: s.transit.config.AuthNamespace, token: s.held.secret, body: struct{}{}, safe: true,
	}, &answer)
	if err == nil && answer.Auth == nil {
		err = fmt.Errorf("%w: an answer without a lease: is this Vault?", kmsplugin.ErrUnavailable)
	}
	if err != nil {
		return lease{}, err
	}
	return answer.lease(), nil
}

// Close ends a token that a login made, unless another session has it too. That of a file is
// somebody else's.
func (s *session) Close(ctx context.Context) error {
	defer s.client.close()
	if !s.held.leave() || s.held.isLost() || !s.held.revocable {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := s.client.ask(ctx, request{
		method: http.MethodPost, path: "auth/token/revoke-self", namespace: s.transit.config.AuthNamespace, token: s.held.secret, body: struct{}{}, safe: true,
	}, nil)
	if err != nil {
		return fmt.Errorf("the token of the login that is over lasts until its time ends: %w", err)
	}
	return nil
}
