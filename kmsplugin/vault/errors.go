package vault

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// ErrMistake is that something cannot work until somebody changes the config, the key or Vault; the
// error says what. It is never an outage.
var ErrMistake = errors.New("set up wrongly")

// A failure is a question without an answer, or with another one than 2xx.
type failure struct {
	error
	status int // of Vault; 0 if it did not answer, or something else did
	// again is whether the question may be asked again: another node may answer, or the same
	// one on another connection.
	again bool
}

func (f failure) Unwrap() error { return f.error }

func hasStatus(err error, status int) bool {
	f, ok := errors.AsType[failure](err)
	return ok && f.status == status
}

// maxText bounds what is repeated of an error of Vault, in bytes.
const maxText = 300

// unreached is why there was no whole answer.
func unreached(ctx context.Context, err error) error {
	remedy := "does it run, and does the network let this host reach it?"
	if repeats(err) {
		err, remedy = errors.New("an answer that is not HTTP's"), "is something else at this address?"
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: no answer in time: %w", kmsplugin.ErrUnavailable, context.Cause(ctx))
	case is[x509.UnknownAuthorityError](err):
		remedy = "give the CA file that has the CA of its certificate"
	case is[x509.HostnameError](err):
		remedy = "give the server name that its certificate has, if this is the right Vault"
	case is[x509.CertificateInvalidError](err):
		remedy = "its certificate, or this host's clock, has to be set right"
	case is[tls.RecordHeaderError](err):
		remedy = "it does not speak TLS: is the port right?"
	case strings.Contains(err.Error(), "remote error: tls"):
		remedy = "it does not take this plugin's certificate, or wants one: give its files"
	}
	return failure{fmt.Errorf("%w: %w: %s", kmsplugin.ErrUnavailable, err, remedy), 0, true}
}

// repeats reports whether an error of net/http has a part of the answer, which may hold a DEK.
func repeats(err error) bool {
	return is[textproto.ProtocolError](err) || is[*textproto.Error](err) ||
		strings.Contains(err.Error(), "\"") && !is[*net.OpError](err) && !is[*tls.CertificateVerificationError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// refusal is what an answer other than 2xx means.
func refusal(r request, answer *http.Response, content []byte) failure {
	text, ofVault := told(r, content)
	shown := strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", r.shown(text)))
	class, remedy := kmsplugin.ErrUnavailable, "is this Vault, with nothing between that answers for it?"
	again := false
	switch code := answer.StatusCode; {
	case code == http.StatusBadRequest && ofVault:
		remedy, again, class = ofBadRequest(r, text)
	case code == http.StatusForbidden && ofVault && r.token == nil:
		class, remedy = kmsplugin.ErrDenied, "Vault does not let this in"
	case code == http.StatusForbidden && ofVault:
		class, remedy = kmsplugin.ErrDenied, "the policy of the token lacks this right, or the token has ended"
	case code == http.StatusNotFound && text == "" && ofVault && r.method == http.MethodGet:
		class, remedy = kmsplugin.ErrUnknownKey, "there is no key of this name: it was deleted, or never made"
	case code == http.StatusNotFound && ofVault:
		remedy = "there is no such mount in this namespace: compare with \"vault secrets list\" and \"vault auth list\""
	case code == http.StatusTooManyRequests:
		class, remedy = kmsplugin.ErrThrottled, "a quota of Vault is used up: raise it, or find who else uses it"
	case code/100 == 3:
		remedy, again = "it is a standby that sends callers elsewhere: give the address of the active node, or of a load balancer that finds it"+r.location(answer), true
	case code == http.StatusServiceUnavailable && strings.Contains(text, "sealed"):
		remedy, again = "it is sealed: unseal it", true
	case code == 472, code == 473, code == http.StatusPreconditionFailed, code >= 500:
		remedy, again = "this node cannot answer now: see its log", true
	}
	failed := failure{error: fmt.Errorf("%w: %s: %s", class, shown, remedy), again: again}
	if ofVault {
		failed.status = answer.StatusCode
	}
	return failed
}

// badRequests are answers 400 of Transit, by what their text contains.
var badRequests = []struct {
	text, remedy string
	class        error
	again        bool
}{
	{"encryption key not found", "the key was deleted: what was wrapped with it is lost unless a backup of the key is restored", kmsplugin.ErrUnknownKey, false},
	{"less than the minimum encryption key version", "min_encryption_version does not allow this version: lower it, or wrap with a newer one", kmsplugin.ErrKeyDisabled, false},
	{"disallowed by policy (too old)", "min_decryption_version was raised past this version: lower it again", kmsplugin.ErrKeyDisabled, false},
	{"no such key version", "min_decryption_version was raised past this version: lower it again, or wrap with a newer one", kmsplugin.ErrKeyDisabled, false},
	{"higher than the latest key version", "this node does not have the version yet: it is a standby that lags", kmsplugin.ErrUnavailable, true},
	{"version is too new", "this node does not have the version yet: it is a standby that lags", kmsplugin.ErrUnavailable, true},
	{"message authentication failed", "it was damaged, or wrapped by something else", kmsplugin.ErrInvalid, false},
	{"invalid ciphertext", "it was damaged, or wrapped by something else", kmsplugin.ErrInvalid, false},
}

// ofBadRequest are the answers 400 of Transit and of the logins.
func ofBadRequest(r request, text string) (remedy string, again bool, class error) {
	for _, known := range badRequests {
		if strings.Contains(text, known.text) {
			return known.remedy, known.again, known.class
		}
	}
	return "Vault does not take the request", false, cmp.Or(r.refused, kmsplugin.ErrUnavailable)
}

// others are what Vault says that is not about a key.
var others = []string{"permission denied", "Vault is sealed", "no active Vault instance found", "quota exceeded", "no handler for route"}

// shown is what of a text of Vault is repeated. Where there is a DEK that is what is known here
// alone: Vault, or what stands before it, may say again what it was sent, spelled in some other way.
func (r request) shown(text string) string {
	if !r.hasDEK || text == "" {
		return text
	}
	for _, known := range badRequests {
		if strings.Contains(text, known.text) {
			return known.text
		}
	}
	for _, known := range others {
		if strings.Contains(text, known) {
			return known
		}
	}
	return "(what it says is not repeated, as it may have the DEK)"
}

// told is what Vault says is wrong, without the secrets that it was sent, and whether it was
// Vault that said it.
func told(r request, content []byte) (text string, ofVault bool) {
	var answer struct {
		Errors []string `json:"errors"`
	}
	if json.Unmarshal(content, &answer) != nil || answer.Errors == nil {
		return "", false
	}
	text = strings.Join(answer.Errors, "; ")
	for _, s := range append(r.hide, r.token) {
		if s != nil {
			text = strings.ReplaceAll(text, s.text, "(redacted)")
		}
	}
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	return strings.Join(strings.Fields(text), " "), true
}

func (r request) location(answer *http.Response) string {
	if u, err := answer.Location(); err == nil && !r.hasDEK {
		return fmt.Sprintf(" (it names %.128s)", u.Host)
	}
	return ""
}
