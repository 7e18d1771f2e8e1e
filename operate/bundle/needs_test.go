package bundle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPluginTellsWhatItNeedsOfItsNode(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		want     Needs
	}{
		"a key file":            {Settings{KeyFile: &KeyFile{Path: "/k/kek.json"}}, Needs{Files: []string{"/k/kek.json"}}},
		"a TPM":                 {Settings{TPM: &TPM{Path: "/k/tpm.json"}}, Needs{Files: []string{"/k/tpm.json"}, Device: "/dev/tpmrm0"}},
		"a TPM by its device":   {Settings{TPM: &TPM{Path: "/k/tpm.json", Device: "/dev/tpm1"}}, Needs{Files: []string{"/k/tpm.json"}, Device: "/dev/tpm1"}},
		"a token in a file":     {Settings{Vault: &Vault{Auth: VaultAuth{JWT: &VaultJWT{File: "/run/jwt"}}}}, Needs{Files: []string{"/run/jwt"}}},
		"a login from a bundle": {Settings{Vault: &Vault{Auth: VaultAuth{AppRole: &VaultAppRole{Secret: "s"}}}}, Needs{}},
		"a PKCS#11 library":     {Settings{PKCS11: &PKCS11{Module: "/lib/x.so"}}, Needs{}},
		"a command":             {Settings{Command: &Command{Arguments: []string{"--file=/x"}}}, Needs{}},
	} {
		require.Equal(t, c.want, (&Plugin{settings: &c.settings}).Needs(), name)
	}
}
