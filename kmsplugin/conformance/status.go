package conformance

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxKeyID is KEP-3299's limit of a key_id in bytes.
const maxKeyID = 1024

func statusChecks() []Check {
	return []Check{{
		ID:      "status-version",
		Says:    "Status answers with the version of the protocol, v2 or v2beta1.",
		Source:  "KEP-3299; kube-apiserver refuses any other",
		Suffers: "it takes the plugin for unhealthy for ever, and is never ready.",
		run:     statusVersion,
	}, {
		ID:      "key-id-form",
		Says:    "The key_id is there and has at most 1024 bytes, and all texts of an answer are UTF-8.",
		Source:  "KEP-3299",
		Suffers: "it refuses the key_id, and encrypts nothing.",
		run:     keyIDForm,
	}, {
		ID:      "key-id-clear",
		Says:    "The key_id shows no address and no credential, neither as it is nor in base64 or hex.",
		Source:  "KEP-3299 advises a hash; vault-kube-kms puts its address, namespace and key name into each (openshift/cluster-kube-apiserver-operator#2276)",
		Suffers: "the key_id lies in the clear beside each value in etcd, in backups and in the cluster's status; and a KMS that moves looks like a rotation of every key.",
		run:     keyIDClear,
	}, {
		ID:      "key-id-stable",
		Says:    "Status names one key_id for as long as nothing is rotated, on each connection.",
		Source:  "KEP-3299; a lagging standby flaps",
		Suffers: "each change is a rotation to it: it makes a new data key, and every value becomes stale and is to be stored anew.",
		run:     keyIDStable,
	}}
}

func statusVersion(ctx context.Context, s *session) error {
	answer, err := s.status(ctx)
	if status.Code(err) == codes.Unimplemented {
		return failed("it does not serve KMS v2, as a plugin of v1 does not: %v", err)
	}
	if err != nil {
		return err
	}
	if answer.Version != "v2" && answer.Version != "v2beta1" {
		return failed("the version is %.100q", answer.Version)
	}
	return nil
}

func keyIDForm(ctx context.Context, s *session) error {
	answer, err := s.status(ctx)
	if err != nil {
		return notUTF8(err, "the key_id")
	}
	w, err := s.wrap(ctx)
	if err != nil {
		return notUTF8(err, "the key_id, or the name of an annotation")
	}
	for of, id := range map[string]string{"Status": answer.KeyId, "Encrypt": w.KeyId} {
		switch {
		case id == "":
			return failed("%s has no key_id", of)
		case len(id) > maxKeyID:
			return failed("%s has a key_id of %d bytes", of, len(id))
		}
	}
	return nil
}

// notUTF8 is a failure if an answer has a text that is not UTF-8, which no client takes and
// some servers do not send. It is not seen which, but there are few.
func notUTF8(err error, texts string) error {
	if status.Code(err) == codes.Internal && strings.Contains(err.Error(), "invalid UTF-8") {
		return failed("there is a text that is not UTF-8: %s: %v", texts, err)
	}
	return err
}

// Four numbers alone may be a version as well as an address, but for those that addresses in
// networks of one's own begin with.
const (
	octet       = `(25[0-5]|2[0-4]\d|1?\d?\d)`
	anyIPv4     = octet + `(\.` + octet + `){3}`
	privateIPv4 = `((10|127)\.` + octet + `|192\.168|172\.(1[6-9]|2\d|3[01]))(\.` + octet + `){2}`
)

// telltale are what a key_id is not to show. What a name and a version look like as well is not
// among them, as in "1.2.3.4", "v1.key:12" and "token:1".
var telltale = []struct {
	what string
	is   *regexp.Regexp
}{
	{"an address with a scheme", regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]+://`)},
	{"an IPv4 address", regexp.MustCompile(`(^|[^0-9.])((` + privateIPv4 + `)($|[^0-9.])|@` + anyIPv4 + `($|[^0-9.])|` + anyIPv4 + `:\d\d)`)},
	{"an IPv6 address", regexp.MustCompile(`\[[0-9a-fA-F:]*::[0-9a-fA-F:.]*\]`)},
	{"this host", regexp.MustCompile(`\blocalhost\b`)},
	{"a host with a port", regexp.MustCompile(`[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+:(80|443|\d{4,5})($|\D)`)},
	{"the ARN of a resource", regexp.MustCompile(`\barn:[a-z-]+:[a-z0-9-]+:`)},
	{"the path of a resource", regexp.MustCompile(`[a-zA-Z0-9_-]+/(keys|cryptoKeys|cryptoKeyVersions)/[a-zA-Z0-9_-]+`)},
	{"a token of Vault", regexp.MustCompile(`\bhv[sbr]\.[A-Za-z0-9_-]{20,}`)},
	{"a token of Vault", regexp.MustCompile(`(^|[^A-Za-z0-9.])s\.[A-Za-z0-9]{24}($|[^A-Za-z0-9])`)}, // before 1.10
	{"an access key of AWS", regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)},
	{"a JSON web token", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.eyJ`)},
	{"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`)},
	{"a password", regexp.MustCompile(`(?i)(password|passwd|pin-value)[=:]\S|secret(=\S|:\S{16})|(^|[^a-z0-9-])(pin=\S|token[=:][a-z0-9+/_.-]{20})`)},
}

// tokenName is the name of a token in a URI of PKCS#11, where it is no secret.
var tokenName = regexp.MustCompile(`(\bpkcs11:(?:[^?\s]*;)?)token=[^;?\s]*`)

func keyIDClear(ctx context.Context, s *session) error {
	id, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	if shown := shows(id); shown != "" {
		return failed("the key_id shows %s", shown)
	}
	return nil
}

// encodings are those in which a key_id may show something, and what is read of a text in each.
var encodings = []struct {
	name   string
	begins *regexp.Regexp
	decode func(string) ([]byte, error)
}{
	{"hex", regexp.MustCompile(`^([0-9A-Fa-f]{2})*`), hex.DecodeString},
	{"base64", regexp.MustCompile(`^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2,3})?`), base64.RawStdEncoding.DecodeString},
	{"base64", regexp.MustCompile(`^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?`), base64.RawURLEncoding.DecodeString},
}

// mark is what may stand before a part of a key_id.
var mark = regexp.MustCompile(`^|[^A-Za-z0-9]`)

// shows is what a key_id shows, and how, or "". The whole of it may be encoded, or what follows
// a mark.
func shows(id string) string {
	if what := shown(id); what != "" {
		return what
	}
	for _, at := range mark.FindAllStringIndex(id, -1) {
		for _, encoding := range encodings {
			raw, err := encoding.decode(encoding.begins.FindString(id[at[1]:]))
			if what := shown(string(raw)); err == nil && what != "" {
				return what + " in " + encoding.name
			}
		}
	}
	return ""
}

func shown(text string) string {
	for _, t := range telltale {
		if t.is.MatchString(tokenName.ReplaceAllString(text, "$1")) {
			return t.what
		}
	}
	return ""
}

func keyIDStable(ctx context.Context, s *session) error {
	first, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	other, err := newClient(s.address)
	if err != nil {
		return err
	}
	defer other.close()
	elsewhere := *s
	elsewhere.client = other
	for n, session := range []*session{s, &elsewhere} {
		for i := range 32 {
			id, err := session.keyID(ctx)
			if err != nil {
				return err
			}
			if id != first {
				return failed("nothing was rotated, and call %d of Status on %s names %s; the first named %s", i+2,
					[]string{"the same connection", "another connection"}[n], short(id), short(first))
			}
		}
	}
	return nil
}

// errMayBeRotated is why another key_id may be right.
var errMayBeRotated = errors.New("it may be that of a rotation that had not shown before")

// stillNames fails unless Status names the key_id that it did. What a rotation that failed or did not show has
// done, a plugin may see later.
func (s *session) stillNames(ctx context.Context, before, after string) error {
	id, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	if id == before {
		return nil
	}
	changed := failed("Status named key_id %s before %s, and %s after it", short(before), after, short(id))
	if rs := s.rotated; rs != nil && cmp.Or(rs.err, rs.unseen()) != nil {
		return fmt.Errorf("%s: %w", changed.Error(), errMayBeRotated)
	}
	return changed
}

// describeKeyID is for a text in which two have to be told apart.
func describeKeyID(id string) string {
	if id == "" {
		return "none"
	}
	return fmt.Sprintf("%s (%d bytes)", short(id), len(id))
}
