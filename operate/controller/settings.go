package controller

import (
	"strings"

	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// settingsOf are the settings of a plugin that do what is wanted.
func settingsOf(k *v1alpha1.KMS) *bundle.Settings {
	s := &bundle.Settings{APIVersion: bundle.APIVersion, Kind: bundle.SettingsKind}
	switch k.Type {
	case v1alpha1.VaultProvider:
		s.Program.Image = string(k.Vault.KMSPluginImage)
		s.Vault = vaultOf(k.Vault)
	case v1alpha1.PKCS11Provider:
		p := k.PKCS11
		s.PKCS11 = &bundle.PKCS11{Module: string(p.Module), Token: string(p.Token), TokenSerial: string(p.TokenSerial), Key: string(p.Key), Secret: p.Secret.Name,
			AllowExtractable: p.AllowExtractable, Sessions: int(p.Sessions), Pin: string(p.Pin), Serving: servingOf(p.Serving)}
	case v1alpha1.TPMProvider:
		s.TPM = &bundle.TPM{Path: string(k.TPM.Path), Device: string(k.TPM.Device), Pin: string(k.TPM.Pin), Serving: servingOf(k.TPM.Serving)}
	case v1alpha1.KeyFileProvider:
		s.KeyFile = &bundle.KeyFile{Path: string(k.KeyFile.Path), Pin: string(k.KeyFile.Pin), Serving: servingOf(k.KeyFile.Serving)}
	}
	return s
}

// vaultOf takes a slash before a namespace away, which means nothing.
func vaultOf(v *v1alpha1.Vault) *bundle.Vault {
	to := &bundle.Vault{Address: v.VaultAddress, KeyPath: v.VaultKeyPath, KeyVersion: v.KeyVersion, Serving: servingOf(v.Serving),
		Namespace: strings.TrimLeft(v.VaultNamespace, "/"), AuthNamespace: strings.TrimLeft(v.VaultAuthNamespace, "/")}
	if v.TLS != nil {
		to.TLS.ServerName = v.TLS.ServerName
		if v.TLS.CABundle != nil {
			to.TLS.CABundle = v.TLS.CABundle.Name
		}
		if v.TLS.Certificate != nil {
			to.TLS.Certificate = v.TLS.Certificate.Name
		}
	}
	a := v.Authentication
	to.Auth.Mount = a.Mount
	switch a.Type {
	case v1alpha1.VaultByAppRole:
		to.Auth.AppRole = &bundle.VaultAppRole{Secret: a.AppRole.Secret.Name, Wrapped: a.AppRole.Wrapped}
	case v1alpha1.VaultByToken:
		to.Auth.Token = &bundle.VaultToken{Secret: a.Token.Secret.Name}
	case v1alpha1.VaultByJWT:
		to.Auth.JWT = &bundle.VaultJWT{Role: string(a.JWT.Role), File: string(a.JWT.File)}
	case v1alpha1.VaultByCert:
		to.Auth.Cert = &bundle.VaultCert{}
		if a.Cert != nil {
			to.Auth.Cert.Role = string(a.Cert.Role)
		}
	}
	return to
}

func servingOf(s v1alpha1.Serving) bundle.Serving {
	return bundle.Serving{Poll: string(s.Poll), HoldDown: string(s.HoldDown)}
}
