package bundle

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kube-atrest/atrest/internal/hashed"
)

const (
	// maxSettings is the longest text of settings, in bytes.
	maxSettings = 64 << 10
	// maxValue is the longest value in them, but for arguments of a command, in bytes: a namespace
	// of Vault has up to 4096 characters in the API of OpenShift.
	maxValue = 4 * 4096
)

// ParseSettings reads settings in YAML or JSON, strictly: an unknown field is an error.
// What they name on a node is not looked at.
func ParseSettings(data []byte) (*Settings, error) {
	if len(data) > maxSettings {
		return nil, fmt.Errorf("settings of %d bytes, and at most %d are read", len(data), maxSettings)
	}
	s := new(Settings)
	if err := decodeStrict(data, s); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if s.Kind != SettingsKind || s.APIVersion != APIVersion {
		return nil, fmt.Errorf("settings: write kind: %s and apiVersion: %s", SettingsKind, APIVersion)
	}
	var found problems
	s.check(&found)
	if err := join(found...); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return s, nil
}

// check notes what is wrong with settings that decoded.
func (s *Settings) check(found *problems) {
	s.Program.check(found)
	given := 0
	for _, is := range []bool{s.Vault != nil, s.KeyFile != nil, s.PKCS11 != nil, s.TPM != nil, s.Command != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		found.addf("%d back ends are given: give exactly one of vault, keyFile, pkcs11, tpm and command", given)
		return
	}
	switch s.Backend() {
	case BackendVault:
		s.Vault.check(found)
	case BackendKeyFile:
		needFile(found, "keyFile.path", s.KeyFile.Path)
		optional(found, "keyFile.pin", s.KeyFile.Pin)
		s.KeyFile.Serving.check(found, "keyFile")
	case BackendPKCS11:
		s.PKCS11.check(found)
	case BackendTPM:
		needFile(found, "tpm.path", s.TPM.Path)
		optionalFile(found, "tpm.device", s.TPM.Device)
		optional(found, "tpm.pin", s.TPM.Pin)
		s.TPM.Serving.check(found, "tpm")
	case BackendCommand:
		s.Command.check(found, s.Program)
	}
	for _, part := range s.Parts() {
		if err := part.check(1); err != nil {
			found.addf("%s with %.64q: %w", part.Source, part.Key, err)
		}
	}
}

func (p *PKCS11) check(found *problems) {
	needFile(found, "pkcs11.module", p.Module)
	need(found, "pkcs11.key", p.Key)
	need(found, "pkcs11.secret", p.Secret)
	optional(found, "pkcs11.token", p.Token)
	optional(found, "pkcs11.tokenSerial", p.TokenSerial)
	optional(found, "pkcs11.pin", p.Pin)
	if p.Token == "" && p.TokenSerial == "" {
		found.addf("pkcs11: neither token nor tokenSerial is given: name the token by one of them")
	}
	if p.Sessions < 0 || p.Sessions > 4096 {
		found.addf("pkcs11.sessions is %d: give 1 to 4096, or leave it away", p.Sessions)
	}
	p.Serving.check(found, "pkcs11")
}

func (s Serving) check(found *problems, of string) {
	for field, text := range map[string]string{"poll": s.Poll, "holdDown": s.HoldDown} {
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || field == "poll" && d == 0 || d > 365*24*time.Hour {
			found.addf("%s.%s is no time: write it as in 10s, at most a year", of, field)
		}
	}
}

func (p Program) check(found *problems) {
	optionalFile(found, "program.path", p.Path)
	if p.SHA256 != "" && !hashed.IsName(p.SHA256) {
		found.addf("program.sha256 is no digest: write sha256: and 64 digits in hex, as \"sha256sum\" gives them")
	}
	if p.Path != "" && p.SHA256 == "" {
		found.addf("program.path is given without program.sha256: give the digest, so that no other file is run")
	}
	if p.Image != "" {
		found.add(checkImage(p.Image))
	}
}

// image is a registry's host, a path in it and a digest. It takes what the API of OpenShift
// does; what a registry does not have is found where it is pulled.
var image = regexp.MustCompile(`^([a-zA-Z0-9-]+([.][a-zA-Z0-9-]+)*)(:[0-9]{1,5})?(/[a-zA-Z0-9_.-]+)+@sha256:[a-f0-9]{64}$`)

func checkImage(text string) error {
	parts := image.FindStringSubmatch(text)
	if len(text) > 447 || parts == nil {
		return fmt.Errorf("program.image %.128q is not HOST[:PORT]/NAME@sha256:DIGEST with 64 digits in hex: an image is named by its digest, not by a tag", text)
	}
	if host, port := parts[1], parts[3]; !strings.Contains(host, ".") && port == "" && host != "localhost" {
		return fmt.Errorf("program.image %.128q has no host: name the registry too", text)
	}
	return nil
}

func need(found *problems, field, value string) {
	if value == "" {
		found.addf("%s is not given", field)
	}
	optional(found, field, value)
}

func optional(found *problems, field, value string) {
	found.add(checkText(field, value, maxValue))
}

// checkText is an error of what cannot stand in an argument or on a line.
func checkText(field, value string, most int) error {
	switch {
	case len(value) > most:
		return fmt.Errorf("%s has %d bytes, and at most %d are allowed", field, len(value), most)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("%s has a character that cannot be printed: take it away", field)
	}
	return nil
}

func needFile(found *problems, field, value string) {
	need(found, field, value)
	optionalFile(found, field, value)
}

func optionalFile(found *problems, field, value string) {
	optional(found, field, value)
	if value != "" && (!path.IsAbs(value) || path.Clean(value) != value || value == "/") {
		found.addf("%s is no absolute path of a file: begin with /, and have no . or .. in it", field)
	}
}
