package bundle

// KEK tells people where the KEK is, in words of its KMS. It is no identity of it: that
// is a key_id, which only the plugin knows.
func (s *Settings) KEK() string {
	switch s.Backend() {
	case BackendVault:
		if s.Vault.Namespace != "" {
			return s.Vault.Address + " " + s.Vault.Namespace + " " + s.Vault.KeyPath
		}
		return s.Vault.Address + " " + s.Vault.KeyPath
	case BackendKeyFile:
		return s.KeyFile.Path
	case BackendPKCS11:
		if s.PKCS11.Token != "" {
			return "token " + s.PKCS11.Token + ", key " + s.PKCS11.Key
		}
		return "token of serial number " + s.PKCS11.TokenSerial + ", key " + s.PKCS11.Key
	case BackendTPM:
		return s.TPM.Path
	default:
		return s.Command.KEK
	}
}
