package bundle

// rule is what a setting has to do with the KEK.
type rule int

const (
	// ofAnything is of a field without a rule: nothing is known of it.
	ofAnything rule = iota
	// ofTheKEK is a setting that says which KEK it is.
	ofTheKEK
	// ofThePlace is one that says where it is: the same KEK may be at two places, and two at
	// one after the other.
	ofThePlace
	// ofTheVersion is one that picks a version of the same KEK.
	ofTheVersion
	// ofTheWay is one of how it is reached and used.
	ofTheWay
)

// rules are for every field of [Settings], by its path.
var rules = map[string]rule{
	"program.path":   ofTheWay,
	"program.sha256": ofTheWay,
	"program.image":  ofTheWay,

	"vault.address":              ofThePlace,
	"vault.namespace":            ofTheKEK,
	"vault.keyPath":              ofTheKEK,
	"vault.keyVersion":           ofTheVersion,
	"vault.insecureHTTP":         ofTheWay,
	"vault.authNamespace":        ofTheWay,
	"vault.tls.caBundle":         ofTheWay,
	"vault.tls.serverName":       ofTheWay,
	"vault.tls.certificate":      ofTheWay,
	"vault.auth.mount":           ofTheWay,
	"vault.auth.appRole.secret":  ofTheWay,
	"vault.auth.appRole.wrapped": ofTheWay,
	"vault.auth.token.secret":    ofTheWay,
	"vault.auth.jwt.role":        ofTheWay,
	"vault.auth.jwt.file":        ofTheWay,
	"vault.auth.cert":            ofTheWay,
	"vault.auth.cert.role":       ofTheWay,
	"vault.poll":                 ofTheWay,
	"vault.holdDown":             ofTheWay,

	"keyFile.path":     ofThePlace,
	"keyFile.pin":      ofTheVersion,
	"keyFile.poll":     ofTheWay,
	"keyFile.holdDown": ofTheWay,

	"pkcs11.module":           ofThePlace,
	"pkcs11.token":            ofThePlace,
	"pkcs11.tokenSerial":      ofThePlace,
	"pkcs11.key":              ofThePlace,
	"pkcs11.secret":           ofTheWay,
	"pkcs11.allowExtractable": ofTheWay,
	"pkcs11.sessions":         ofTheWay,
	"pkcs11.pin":              ofTheVersion,
	"pkcs11.poll":             ofTheWay,
	"pkcs11.holdDown":         ofTheWay,

	"tpm.path":     ofThePlace,
	"tpm.device":   ofThePlace,
	"tpm.pin":      ofTheVersion,
	"tpm.poll":     ofTheWay,
	"tpm.holdDown": ofTheWay,

	"command.kek":       ofTheKEK,
	"command.arguments": ofThePlace,
}

// effectOf is what a change of such a field needs, as far as was seen. That it is one KEK, or two,
// is known by what was seen, whatever the field says.
func effectOf(r rule, kek kekVerdict, why string) (Effect, string) {
	switch {
	case kek == anotherKEK:
		return AnotherKeyID, why
	case r == ofTheWay:
		return InPlace, "it is how the KEK is reached, and not which one it is"
	case r == ofTheVersion:
		return InPlace, "it picks a version of the same KEK: the key_id changes, as when the KMS rotates"
	case kek == sameKEK:
		return InPlace, "it leads to the same KEK: " + why
	case r == ofTheKEK:
		return AnotherKeyID, "it says which KEK it is"
	case kek == otherVersion:
		return Undecided, "it may lead to the same KEK, rotated meanwhile: " + why + "; ask both again"
	}
	return Undecided, "it may lead to the same KEK or to another: " + why
}
