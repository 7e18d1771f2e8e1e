package bundle

// APIVersion and SettingsKind are those of [Settings].
const (
	APIVersion   = "encryption.kube-atrest.io/v1alpha1"
	SettingsKind = "PluginSettings"
)

// Settings are how one plugin is run. They hold no credential: those are parts of the
// bundle, which they name. Exactly one of the back ends is set. Treat them as read-only.
type Settings struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Program is what is run; without it the node's own atrest-kms-plugin.
	Program Program `json:"program,omitzero"`

	Vault   *Vault   `json:"vault,omitempty"`
	KeyFile *KeyFile `json:"keyFile,omitempty"`
	PKCS11  *PKCS11  `json:"pkcs11,omitempty"`
	TPM     *TPM     `json:"tpm,omitempty"`
	Command *Command `json:"command,omitempty"`
}

// Backend is where a plugin has its KEKs.
type Backend string

// The back ends. BackendCommand is a plugin of somebody else's.
const (
	BackendVault   Backend = "vault"
	BackendKeyFile Backend = "keyFile"
	BackendPKCS11  Backend = "pkcs11"
	BackendTPM     Backend = "tpm"
	BackendCommand Backend = "command"
)

// Program is the plugin's binary, for a node that runs processes, and its image, for one
// that runs pods.
type Program struct {
	// Path is absolute; without it the node's own atrest-kms-plugin is run.
	Path string `json:"path,omitempty"`
	// SHA256 is the digest of the file, as "sha256:" and 64 digits in hex. A file with
	// another one is not run.
	SHA256 string `json:"sha256,omitempty"`
	// Image is HOST/NAME@sha256:DIGEST.
	Image string `json:"image,omitempty"`
}

// KeyFile is a file with the KEKs on the node.
type KeyFile struct {
	// Path is absolute.
	Path string `json:"path"`
	// Pin is the ID of the one version to wrap with; empty is the newest.
	Pin     string `json:"pin,omitempty"`
	Serving `json:",inline"`
}

// PKCS11 is a token, an HSM or SoftHSM.
type PKCS11 struct {
	// Module is the absolute path of the PKCS#11 library.
	Module string `json:"module"`
	// Token is its label, or TokenSerial its serial number, or both.
	Token       string `json:"token,omitempty"`
	TokenSerial string `json:"tokenSerial,omitempty"`
	// Key is the label of the keys.
	Key string `json:"key"`
	// Secret has pin.
	Secret           string `json:"secret"`
	AllowExtractable bool   `json:"allowExtractable,omitempty"`
	// Sessions is how many calls the token does at once; 0 is the plugin's default.
	Sessions int `json:"sessions,omitempty"`
	// Pin is the ID of the one version to wrap with; empty is the newest.
	Pin     string `json:"pin,omitempty"`
	Serving `json:",inline"`
}

// TPM is a file with the KEKs that the TPM of the node opens.
type TPM struct {
	// Path is that of the key file, absolute.
	Path string `json:"path"`
	// Device is the TPM's; without it the plugin's default.
	Device string `json:"device,omitempty"`
	// Pin is the ID of the one version to wrap with; empty is the newest.
	Pin     string `json:"pin,omitempty"`
	Serving `json:",inline"`
}

// Serving is what the plugins of atrest have in common.
type Serving struct {
	// Poll is the time between two looks at the key, and HoldDown how old a version is
	// before it wraps, as in "10s"; empty is the plugin's default.
	Poll     string `json:"poll,omitempty"`
	HoldDown string `json:"holdDown,omitempty"`
}

// Command is a plugin of somebody else's, whose Program is given by digest.
type Command struct {
	// Arguments are given as they are, but that $(endpoint) is the socket's URL,
	// $(socket) its path, and $(secret/NAME/KEY) and $(configmap/NAME/KEY) the path of a
	// part's file. $$ is a dollar. A credential is never an argument: everybody on the
	// node sees those.
	Arguments []string `json:"arguments,omitempty"`
	// KEK tells which KEK it is, in words of its KMS, such as a URL without credentials.
	KEK string `json:"kek"`
}

// Backend is the one that is set.
func (s *Settings) Backend() Backend {
	switch {
	case s.Vault != nil:
		return BackendVault
	case s.KeyFile != nil:
		return BackendKeyFile
	case s.PKCS11 != nil:
		return BackendPKCS11
	case s.TPM != nil:
		return BackendTPM
	}
	return BackendCommand
}
