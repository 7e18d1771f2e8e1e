package bundle

import "cmp"

// Needs are what a plugin has of its node beside its program, its parts and its socket, as far
// as its settings tell.
type Needs struct {
	// Files are the absolute paths of the files that it reads. Another file takes the place of
	// one that changes, so who mounts them mounts their folders.
	Files []string `json:"files,omitempty"`
	// Device is the path of the one that it uses, empty if there is none.
	Device string `json:"device,omitempty"`
}

// defaultTPM is what is told of where settings name no TPM.
const defaultTPM = "/dev/tpmrm0"

// Needs are those of its settings. What a command's arguments mean nobody knows here, and a
// PKCS#11 library belongs to the program.
func (p *Plugin) Needs() Needs {
	s := p.settings
	switch {
	case s.KeyFile != nil:
		return Needs{Files: []string{s.KeyFile.Path}}
	case s.TPM != nil:
		return Needs{Files: []string{s.TPM.Path}, Device: cmp.Or(s.TPM.Device, defaultTPM)}
	case s.Vault != nil && s.Vault.Auth.JWT != nil:
		return Needs{Files: []string{s.Vault.Auth.JWT.File}}
	}
	return Needs{}
}
