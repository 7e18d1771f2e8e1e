//go:build cgo

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/pkcs11"
)

// openPKCS11 makes a token of SoftHSM. Once in a process: the module reads but once where its
// tokens are.
func openPKCS11(ctx context.Context, folder string) (kmsplugin.Backend, kmsplugin.Config, func(), error) {
	config := pkcs11.Config{Module: softHSM(), Token: "wraps", PINFile: folder + "/pin", Key: "kek"}
	if config.Module == "" {
		return nil, kmsplugin.Config{}, nil, leftOut("there is no SoftHSM: apt-get install softhsm2")
	}
	const pin = "123456"
	token, err := newToken(folder, pin, config)
	if err == nil {
		_, err = token.Create(ctx)
	}
	if err != nil {
		return nil, kmsplugin.Config{}, nil, err
	}
	return token, token.Keeping(), func() {}, nil
}

func newToken(folder, pin string, config pkcs11.Config) (*pkcs11.Token, error) {
	tokens, conf := folder+"/tokens", folder+"/softhsm2.conf"
	if err := os.Mkdir(tokens, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(conf, []byte("directories.tokendir = "+tokens+"\nobjectstore.backend = file\nlog.level = ERROR\n"), 0o600); err != nil {
		return nil, err
	}
	if err := os.Setenv("SOFTHSM2_CONF", conf); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config.PINFile, []byte(pin), 0o600); err != nil {
		return nil, err
	}
	said, err := exec.Command("softhsm2-util", "--init-token", "--free", "--label", config.Token, "--so-pin", pin, "--pin", pin).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("softhsm2-util --init-token: %w: %s", err, said)
	}
	return pkcs11.New(config)
}

// softHSM is the path of the module, empty where it is not installed.
func softHSM() string {
	if _, err := exec.LookPath("softhsm2-util"); err != nil {
		return ""
	}
	for _, pattern := range []string{"/usr/lib*/*/softhsm/libsofthsm2.so", "/usr/lib*/softhsm/libsofthsm2.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
