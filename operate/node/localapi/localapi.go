// Package localapi asks the apiserver of this very machine what it has in effect, for a node that
// runs its plugins: over a loopback address, and only if it tells that it is the one.
package localapi

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/node"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// New asks the apiserver at a loopback address, https://127.0.0.1:6443, for the user
// of a configuration. identity is what it has to tell as its own: "sha256:" and the hash of its
// ID, as [IdentityOf] makes it for a host. An answer of another is an error: what listens
// on a loopback address may be a load balancer, which leads to any of the cluster.
func New(address, identity string, user *rest.Config, clk clock.PassiveClock) (node.Asker, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the apiserver: %w", err)
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("address of the apiserver: %q is not of this machine alone: write https://127.0.0.1:PORT or https://[::1]:PORT", address)
	}
	if !hashed.IsName(identity) {
		return nil, fmt.Errorf("identity of the apiserver: %q is no hash: write sha256: and 64 digits in hex, as its metrics have it for apiserver_id_hash", identity)
	}
	member, err := fleet.At(address, user)
	if err != nil {
		return nil, err
	}
	one, err := fleet.New([]fleet.Member{member}, clk)
	if err != nil {
		return nil, err
	}
	return &local{name: member.Name, identity: identity, observe: one.Observe}, nil
}

type local struct {
	name, identity string
	observe        func(context.Context) map[string]rotation.Instance
}

func (l *local) Name() string { return l.name }

func (l *local) Ask(ctx context.Context) (node.Answer, error) {
	i, ok := l.observe(ctx)[l.name]
	switch {
	case !ok:
		return node.Answer{}, errors.New("it did not answer")
	case i.Problem != "":
		return node.Answer{}, errors.New(i.Problem)
	case i.Server == "":
		return node.Answer{}, errors.New("it does not tell who it is: is its feature APIServerIdentity off?")
	case i.Server != l.identity:
		return node.Answer{}, fmt.Errorf("who answers is %s, and not %s, which is that of this node: does a load balancer listen there?", i.Server, l.identity)
	}
	return node.Answer{Process: i.Process, Config: i.ConfigHash}, nil
}

// IdentityOf is the hash of the ID that a kube-apiserver gives itself on a host of that name,
// as its metrics have it for apiserver_id_hash (since Kubernetes v1.27).
func IdentityOf(hostname string) string {
	var text []byte
	for _, part := range []string{hostname, "kube-apiserver"} {
		text = binary.BigEndian.AppendUint16(text, uint16(len(part)))
		text = append(text, part...)
	}
	sum := sha256.Sum256(text)
	id := "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
	return hashed.ID(id)
}
