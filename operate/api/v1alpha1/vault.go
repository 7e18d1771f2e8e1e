package v1alpha1

// Vault is a key in the Transit engine of HashiCorp Vault or OpenBao, and the way to it.
//
// +kubebuilder:validation:XValidation:rule="self.authentication.type != 'Cert' || has(self.tls) && has(self.tls.certificate)",message="tls.certificate is required when authentication type is Cert"
type Vault struct {
	// kmsPluginImage is the image of the plugin, HOST[:PORT]/NAME@sha256:DIGEST, for nodes that
	// run it in a pod. Nodes that run it as a process need none. It changes in place.
	//
	// +optional
	KMSPluginImage Image `json:"kmsPluginImage,omitempty"`

	// vaultAddress is https://HOST[:PORT] of Vault, and nothing more. Another address is taken
	// for another key, which everything is migrated to, unless the plugins show that it is the
	// same.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHostname() != ''",message="must be a valid URL"
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https'",message="must use the 'https' scheme"
	// +kubebuilder:validation:XValidation:rule="isURL(self) && (url(self).getEscapedPath() == '' || url(self).getEscapedPath() == '/')",message="must not contain a path"
	// +kubebuilder:validation:XValidation:rule="isURL(self) && !self.contains('?')",message="must not have a query"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#')",message="must not have a fragment"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="must not have user info"
	VaultAddress string `json:"vaultAddress,omitempty"`

	// vaultNamespace is the namespace of the key. Community Edition and older OpenBao have none.
	// Another one is another key, which everything is migrated to.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('/')",message="vaultNamespace cannot end with a forward slash"
	// +kubebuilder:validation:XValidation:rule="!self.contains(' ')",message="vaultNamespace cannot contain spaces"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/*(root|sys|audit|auth|cubbyhole|identity)$')",message="vaultNamespace cannot be a reserved string (root, sys, audit, auth, cubbyhole, identity)"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('\\p{Cc}')`,message="vaultNamespace cannot contain control characters"
	VaultNamespace string `json:"vaultNamespace,omitempty"`

	// vaultAuthNamespace is the namespace of the login. Without it that is vaultNamespace. It
	// changes in place.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('/')",message="vaultAuthNamespace cannot end with a forward slash"
	// +kubebuilder:validation:XValidation:rule="!self.contains(' ')",message="vaultAuthNamespace cannot contain spaces"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/*(root|sys|audit|auth|cubbyhole|identity)$')",message="vaultAuthNamespace cannot be a reserved string (root, sys, audit, auth, cubbyhole, identity)"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('\\p{Cc}')`,message="vaultAuthNamespace cannot contain control characters"
	VaultAuthNamespace string `json:"vaultAuthNamespace,omitempty"`

	// tls is how Vault is known, and the plugin to it. It changes in place.
	//
	// +optional
	TLS *VaultTLS `json:"tls,omitempty"`

	// authentication is how the plugin logs in. It changes in place.
	//
	// +required
	Authentication *VaultAuthentication `json:"authentication,omitempty"`

	// vaultKeyPath is MOUNT/keys/NAME of the key, such as transit/keys/kube. The name begins
	// after the last /keys/. Another path is another key, which everything is migrated to.
	//
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=1542
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/')",message="vaultKeyPath cannot start with a forward slash"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('/')",message="vaultKeyPath cannot end with a forward slash"
	// +kubebuilder:validation:XValidation:rule="!self.contains('//')",message="vaultKeyPath cannot contain consecutive forward slashes"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9._~/-]+$')",message="vaultKeyPath must only contain RFC 3986 unreserved characters (alphanumeric, hyphen, period, underscore, tilde) and forward slashes"
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|/)[.]{1,2}(/|$)')",message="vaultKeyPath must not contain '.' or '..' path segments"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9._~-]+(/[a-zA-Z0-9._~-]+)*/keys/[a-zA-Z0-9_]([a-zA-Z0-9_.-]*[a-zA-Z0-9_])?$')",message="vaultKeyPath must follow the format <mount>/keys/<key-name> where the key name starts and ends with an alphanumeric character or underscore and may contain alphanumeric characters, underscores, hyphens, and periods"
	VaultKeyPath string `json:"vaultKeyPath,omitempty"`

	// keyVersion is the one version of the key to wrap with, such as 3. Without it that is the
	// newest, and a rotation in Vault is followed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([1-9][0-9]{0,9})?$')",message="keyVersion must be the number of a version, from 1 on"
	// +kubebuilder:validation:MaxLength=10
	KeyVersion string `json:"keyVersion,omitempty"`

	Serving `json:",inline"`
}

// Image is an image by its digest.
//
// +kubebuilder:validation:MinLength=75
// +kubebuilder:validation:MaxLength=447
// +kubebuilder:validation:XValidation:rule="self.split('@').size() == 2 && self.split('@')[1].matches('^sha256:[a-f0-9]{64}$')",message="the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' is 64 characters long"
// +kubebuilder:validation:XValidation:rule="self.split('@')[0].matches('^(([a-zA-Z0-9-]+[.])+[a-zA-Z0-9-]+|localhost)(:[0-9]{1,5})?(/[a-zA-Z0-9-_.]+)+$')",message="the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme. Short names are not allowed, the registry hostname must be included."
type Image string

// VaultTLS is how Vault is known, and the plugin to it.
//
// +kubebuilder:validation:MinProperties=1
type VaultTLS struct {
	// caBundle is a ConfigMap in the namespace of the controller whose ca-bundle.crt has the CAs
	// of Vault's certificate. Without it they are those of the system.
	//
	// +optional
	CABundle *ConfigMapReference `json:"caBundle,omitempty"`

	// serverName is the name in Vault's certificate, where it is not the host of the address.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serverName must be a valid DNS hostname: contain no more than 253 characters, contain only lowercase alphanumeric characters, '-' or '.', and start and end with an alphanumeric character"
	ServerName string `json:"serverName,omitempty"`

	// certificate is a Secret in the namespace of the controller with tls.crt and tls.key, the
	// plugin's own.
	//
	// +optional
	Certificate *SecretReference `json:"certificate,omitempty"`
}

// VaultAuthentication is how the plugin logs in.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'AppRole' ? has(self.appRole) : !has(self.appRole)",message="appRole config is required when authentication type is AppRole, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="self.type == 'Token' ? has(self.token) : !has(self.token)",message="token config is required when authentication type is Token, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="self.type == 'JWT' ? has(self.jwt) : !has(self.jwt)",message="jwt config is required when authentication type is JWT, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="self.type == 'Cert' || !has(self.cert)",message="cert config is forbidden when authentication type is not Cert"
// +kubebuilder:validation:XValidation:rule="self.type != 'Token' || !has(self.mount)",message="mount is forbidden when authentication type is Token"
// +union
type VaultAuthentication struct {
	// type is the way to log in: AppRole; Token, by a token of Vault; JWT, by one that somebody
	// keeps in a file on each node, such as a SPIFFE agent; Cert, by tls.certificate.
	//
	// +required
	// +unionDiscriminator
	Type VaultAuthenticationType `json:"type,omitempty"`

	// mount is where the way to log in is mounted, if not at approle, jwt or cert.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*$') && !self.matches('(^|/)[.]{1,2}(/|$)')",message="mount must be a path of letters, digits, '-', '_' and '.', without a slash at its ends and without '.' or '..' path segments"
	Mount string `json:"mount,omitempty"`

	// appRole is the Secret of AppRole.
	//
	// +optional
	// +unionMember
	AppRole *VaultAppRole `json:"appRole,omitempty"`

	// token is the Secret of Token.
	//
	// +optional
	// +unionMember
	Token *VaultToken `json:"token,omitempty"`

	// jwt is the role and the file of JWT.
	//
	// +optional
	// +unionMember
	JWT *VaultJWT `json:"jwt,omitempty"`

	// cert is the role of Cert. It may be left out.
	//
	// +optional
	// +unionMember
	Cert *VaultCert `json:"cert,omitempty"`
}

// VaultAuthenticationType is a way to log in.
//
// +kubebuilder:validation:Enum=AppRole;Token;JWT;Cert
type VaultAuthenticationType string

// The ways to log in.
const (
	VaultByAppRole VaultAuthenticationType = "AppRole"
	VaultByToken   VaultAuthenticationType = "Token"
	VaultByJWT     VaultAuthenticationType = "JWT"
	VaultByCert    VaultAuthenticationType = "Cert"
)

// VaultAppRole is a login by AppRole.
type VaultAppRole struct {
	// secret is a Secret in the namespace of the controller with role-id and secret-id.
	//
	// +required
	Secret *SecretReference `json:"secret,omitempty"`

	// wrapped says that secret-id is a wrapping token that gives the secret-id, once.
	//
	// +optional
	Wrapped bool `json:"wrapped,omitempty"`
}

// VaultToken is a login by a token.
type VaultToken struct {
	// secret is a Secret in the namespace of the controller with token.
	//
	// +required
	Secret *SecretReference `json:"secret,omitempty"`
}

// VaultJWT is a login by a JWT that is on each node.
type VaultJWT struct {
	// role is the one to log in as.
	//
	// +required
	Role Label `json:"role,omitempty"`

	// file is the absolute path of the JWT on each node. It is read again for each login.
	//
	// +required
	File FilePath `json:"file,omitempty"`
}

// VaultCert is a login by certificate.
type VaultCert struct {
	// role is the one to log in as. Without it Vault looks for one that fits.
	//
	// +optional
	Role Label `json:"role,omitempty"`
}

// SecretReference names a Secret in the namespace of the controller.
type SecretReference struct {
	// name is that of the Secret. It has at most 182 characters: with more, the data keys under
	// which its content is kept would have more than the 253 that a Secret allows.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=182
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a valid DNS subdomain name: contain no more than 253 characters, contain only lowercase alphanumeric characters, '-' or '.', and start and end with an alphanumeric character"
	Name string `json:"name,omitempty"`
}

// ConfigMapReference names a ConfigMap in the namespace of the controller.
type ConfigMapReference struct {
	// name is that of the ConfigMap. It has at most 175 characters: with more, the data key under
	// which its content is kept would have more than the 253 that a Secret allows.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=175
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a valid DNS subdomain name: contain no more than 253 characters, contain only lowercase alphanumeric characters, '-' or '.', and start and end with an alphanumeric character"
	Name string `json:"name,omitempty"`
}
