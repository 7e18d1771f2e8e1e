package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// A store is a back end that is measured. Another one is added by its function.
type store struct {
	name  string
	about string
	// open makes it, with a key, in an empty folder; end takes it down. Where this machine has not
	// what it needs the error is leftOut.
	open func(ctx context.Context, folder string) (backend kmsplugin.Backend, config kmsplugin.Config, end func(), err error)
	// goal is what a call of the plugin may take as a multiple of one of the back end; 0 for
	// one in this process, beside which any socket is slow: also SoftHSM, which takes some 30
	// to 90 µs where gRPC takes 50 to 100. An HSM that is a device takes milliseconds.
	goal float64
}

// near is how long a call takes to a KMS in the same data centre, if that is quick.
const near = time.Millisecond

func stores() []store {
	return []store{
		{"keyfile", "a key file, in memory", openKeyFile, 0},
		{"tpm", "a key that swtpm, a TPM in software, has opened, in memory", openTPM, 0},
		{"pkcs11", "a key on a token of SoftHSM, which is in this process", openPKCS11, 0},
		{"vault", "Transit of a real Vault, a process of its own on the same processors, with its storage in memory, by http on loopback", openVault, 1.2},
		{"distant", fmt.Sprintf("a key file of which each call takes %s more, as of a KMS in the same data centre", near), openDistant, 1.2},
	}
}

// leftOut says why a back end cannot be measured on this machine, and how to have it.
type leftOut string

func (l leftOut) Error() string { return string(l) }

func openKeyFile(ctx context.Context, folder string) (kmsplugin.Backend, kmsplugin.Config, func(), error) {
	file := keyfile.At(folder + "/kek.json")
	_, err := file.Create(ctx)
	return file, keyfile.Config(), func() {}, err
}

func openDistant(ctx context.Context, folder string) (kmsplugin.Backend, kmsplugin.Config, func(), error) {
	file, config, end, err := openKeyFile(ctx, folder)
	return distant{file}, config, end, err
}

// distant is a back end to which the way is long.
type distant struct{ kmsplugin.Backend }

func (d distant) Open(ctx context.Context) (kmsplugin.Session, error) {
	session, err := d.Backend.Open(ctx)
	return distantSession{session}, err
}

type distantSession struct{ kmsplugin.Session }

func (d distantSession) Wrap(ctx context.Context, v kmsplugin.Version, dek, aad []byte) ([]byte, kmsplugin.Version, error) {
	time.Sleep(near)
	return d.Session.Wrap(ctx, v, dek, aad)
}

func (d distantSession) Unwrap(ctx context.Context, v kmsplugin.Version, ciphertext, aad []byte) ([]byte, error) {
	time.Sleep(near)
	return d.Session.Unwrap(ctx, v, ciphertext, aad)
}
