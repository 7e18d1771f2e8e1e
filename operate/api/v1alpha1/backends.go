package v1alpha1

// PKCS11 is a key in a token, an HSM or SoftHSM.
//
// +kubebuilder:validation:XValidation:rule="has(self.token) || has(self.tokenSerial)",message="at least one of token and tokenSerial must be set"
type PKCS11 struct {
	// module is the absolute path of the PKCS#11 library on each node.
	//
	// +required
	Module FilePath `json:"module,omitempty"`

	// token is the label of the token.
	//
	// +optional
	Token Label `json:"token,omitempty"`

	// tokenSerial is the serial number of the token, where no other has it.
	//
	// +optional
	TokenSerial Label `json:"tokenSerial,omitempty"`

	// key is the label of the keys, CKA_LABEL.
	//
	// +required
	Key Label `json:"key,omitempty"`

	// secret is a Secret in the namespace of the controller with pin, that of the token's user.
	//
	// +required
	Secret *SecretReference `json:"secret,omitempty"`

	// allowExtractable takes keys, too, that can be read from the token, or used without a PIN.
	//
	// +optional
	AllowExtractable bool `json:"allowExtractable,omitempty"`

	// sessions is how many calls the token does at once, up to 4096. Without it, or 0, it is 8.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	Sessions int32 `json:"sessions,omitempty"`

	// pin is the ID of the one version of the key to wrap with. Without it that is the newest.
	//
	// +optional
	Pin Label `json:"pin,omitempty"`

	Serving `json:",inline"`
}

// TPM is a file with keys that the TPM of the node opens.
type TPM struct {
	// path is that of the key file, absolute, on each node.
	//
	// +required
	Path FilePath `json:"path,omitempty"`

	// device is the absolute path of the TPM. Without it that is /dev/tpmrm0.
	//
	// +optional
	Device FilePath `json:"device,omitempty"`

	// pin is the ID of the one version of the key to wrap with. Without it that is the newest.
	//
	// +optional
	Pin Label `json:"pin,omitempty"`

	Serving `json:",inline"`
}

// KeyFile is a file with keys.
type KeyFile struct {
	// path is that of the key file, absolute, on each node.
	//
	// +required
	Path FilePath `json:"path,omitempty"`

	// pin is the ID of the one version of the key to wrap with. Without it that is the newest.
	//
	// +optional
	Pin Label `json:"pin,omitempty"`

	Serving `json:",inline"`
}

// Serving is what the plugins of all back ends have in common.
type Serving struct {
	// poll is the time between two looks of a plugin at the versions of its key, at most 8760h.
	// Without it, it is that of the back end.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|s|m|h)){1,4}$') && duration(self) > duration('0s') && duration(self) <= duration('8760h')",message="poll must be longer than 0s and at most 8760h, as in 10s"
	Poll Duration `json:"poll,omitempty"`

	// holdDown is how old a version of the key has to be before it wraps: longer than it takes to
	// get to all nodes, and at most 8760h. Without it, it is that of the back end.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|s|m|h)){1,4}$') && duration(self) <= duration('8760h')",message="holdDown must be at most 8760h, as in 2m"
	HoldDown Duration `json:"holdDown,omitempty"`
}

// FilePath is the absolute path of a file on a node.
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.matches('^(/[ -.0-~]+)+$') && !self.matches('/[.]{1,2}(/|$)')",message="must be the absolute path of a file, of printable ASCII characters, without '.' or '..' path segments"
type FilePath string

// Label is a name that a KMS has given something.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule=`!self.matches('\\p{Cc}')`,message="must not contain control characters"
type Label string
