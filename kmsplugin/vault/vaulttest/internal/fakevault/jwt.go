package fakevault

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// jwt logs in who has a token that some key signed.
type jwt struct {
	keys  []*ecdsa.PublicKey
	roles map[string]*jwtRole
}

type jwtRole struct {
	grant
	subject   string
	audiences []string
}

func (*jwt) kind() string { return "jwt" }

func (e *jwt) answer(v *Vault, q *request) answer {
	if q.rest == "login" {
		return e.login(v, q)
	}
	name, isRole := strings.CutPrefix(q.rest, "role/")
	switch {
	case q.operation != "update":
		return unsupported()
	case q.rest == "config":
		return e.configure(q)
	case !isRole:
		return missing()
	}
	q.body.ignore("role_type", "user_claim")
	e.roles[name] = &jwtRole{grant: q.body.grant(), subject: q.body.text("bound_subject"), audiences: q.body.list("bound_audiences")}
	return answer{data: map[string]any{}}
}

func (e *jwt) configure(q *request) answer {
	e.keys = nil
	for _, text := range q.body.list("jwt_validation_pubkeys") {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return invalid("error parsing public key: data does not contain any valid public keys")
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, isECDSA := parsed.(*ecdsa.PublicKey)
		if err != nil || !isECDSA {
			return invalid("error parsing public key: the fake takes those of ECDSA alone")
		}
		e.keys = append(e.keys, public)
	}
	return done()
}

func (e *jwt) login(v *Vault, q *request) answer {
	name := q.body.text("role")
	role := e.roles[name]
	switch {
	case e.keys == nil:
		return invalid("could not load configuration")
	case name == "":
		return invalid("missing role")
	case role == nil:
		return invalid(fmt.Sprintf("role %q could not be found", name))
	case q.body.text("jwt") == "":
		return invalid("missing token")
	}
	c, err := e.verify(q.body.text("jwt"), role, v.now())
	if err != nil {
		return invalid("error validating token: " + err.Error())
	}
	subject := c.Subject
	return v.login(q, role.grant, "jwt-"+subject, map[string]string{"role": name})
}

// claims are those of a JWT that matter here.
type claims struct {
	Subject  string          `json:"sub"`
	Audience json.RawMessage `json:"aud"`
	Expires  int64           `json:"exp"`
	Pod      struct {
		Namespace string `json:"namespace"`
		Account   struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

func (c claims) audiences() []string {
	var many []string
	var one string
	if json.Unmarshal(c.Audience, &many) == nil {
		return many
	}
	if json.Unmarshal(c.Audience, &one) == nil {
		return []string{one}
	}
	return nil
}

// claimsOf reads a JWT of ES256 without a look at its signature.
func claimsOf(text string) (c claims, signed string, signature []byte, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return c, "", nil, errors.New("compact JWS format must have three parts")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &c)
	}
	if err == nil {
		signature, err = base64.RawURLEncoding.DecodeString(parts[2])
	}
	return c, parts[0] + "." + parts[1], signature, err
}

func (e *jwt) verify(text string, role *jwtRole, now time.Time) (claims, error) {
	c, signed, signature, err := claimsOf(text)
	if err != nil {
		return c, fmt.Errorf("error verifying token signature: go-jose/go-jose: %w", err)
	}
	sum := sha256.Sum256([]byte(signed))
	if len(signature) != 64 || !slices.ContainsFunc(e.keys, func(key *ecdsa.PublicKey) bool {
		return ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	}) {
		return c, errors.New("error verifying token signature: no known key successfully validated the token signature")
	}
	// Vault lets a clock be wrong by so much.
	const leeway = 150 * time.Second
	switch {
	case c.Expires > 0 && now.After(time.Unix(c.Expires, 0).Add(leeway)):
		return c, errors.New("invalid expiration time (exp) claim: token is expired")
	case role.subject != "" && c.Subject != role.subject:
		return c, errors.New("invalid subject (sub) claim")
	case len(role.audiences) > 0 && !slices.ContainsFunc(c.audiences(), func(a string) bool { return slices.Contains(role.audiences, a) }):
		return c, errors.New("invalid audience (aud) claim: audience claim does not match any expected audience")
	}
	return c, nil
}
