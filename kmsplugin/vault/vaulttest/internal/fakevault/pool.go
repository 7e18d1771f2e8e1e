package fakevault

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// pool are certificates that others are held to.
type pool struct {
	roots *x509.CertPool
}

func parsePool(text string) (pool, error) {
	p := pool{x509.NewCertPool()}
	if !p.roots.AppendCertsFromPEM([]byte(text)) {
		return pool{}, errors.New("no certificate in PEM")
	}
	return p, nil
}

// has reports whether a client's certificate is of the pool.
func (p pool) has(chain []*x509.Certificate, now time.Time) bool {
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: p.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// hex is how Vault writes the ids of keys.
func hex(id []byte) string {
	var parts []string
	for _, b := range id {
		parts = append(parts, fmt.Sprintf("%02x", b))
	}
	return strings.Join(parts, ":")
}
