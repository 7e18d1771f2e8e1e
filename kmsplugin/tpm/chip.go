package tpm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A chip is a TPM while it is spoken with, and the storage key that it has made for that. It is for
// one goroutine.
type chip struct {
	line   *line
	parent tpm2.NamedHandle
	public tpm2.TPMTPublic // of the parent
}

// sealed is an object that the TPM alone can open, in the two parts that it is loaded by.
type sealed struct {
	public, private []byte
}

// withChip has a TPM make its storage key, calls use and closes the line. What was loaded is flushed:
// not every TPM has somebody between who does that.
func withChip(line *line, use func(*chip) error) error {
	defer line.Close()
	if err := line.begin(); err != nil {
		return err
	}
	made, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
		InPublic:      tpm2.New2B(tpm2.ECCSRKTemplate),
	}.Execute(line)
	if err != nil {
		return fmt.Errorf("its storage key: %w", ofOwner(err))
	}
	c := &chip{line: line}
	defer c.flush(made.ObjectHandle)
	public, err := made.OutPublic.Contents()
	if err != nil {
		return fmt.Errorf("%w: its storage key cannot be read: %w", kmsplugin.ErrUnavailable, err)
	}
	// As it is computed here: whoever sits between might say anything.
	name, err := tpm2.ObjectName(public)
	if err != nil {
		return fmt.Errorf("%w: its storage key cannot be named: %w", kmsplugin.ErrUnavailable, err)
	}
	c.public, c.parent = *public, tpm2.NamedHandle{Handle: made.ObjectHandle, Name: *name}
	return use(c)
}

// name is that of the storage key: it is another one once the TPM was cleared, and on every
// other machine.
func (c *chip) name() []byte { return c.parent.Name.Buffer }

// is holds the TPM against the one that a file was made with.
func (c *chip) is(name []byte) error {
	if bytes.Equal(c.name(), name) {
		return nil
	}
	return fmt.Errorf("%w: this is not the TPM that the keys are sealed under: it was cleared, or the file is from another machine, or somebody sits between: seal them again with the recovery key (recover)", kmsplugin.ErrDenied)
}

const nonceSize = 16

// seal seals a secret that opens under a policy, or under none.
func (c *chip) seal(secret, policy []byte) (sealed, error) {
	session, end, err := c.authorize(pcrs{}, tpm2.AESEncryption(128, tpm2.EncryptIn))
	if err != nil {
		return sealed{}, err
	}
	defer end()
	made, err := tpm2.Create{
		ParentHandle: tpm2.AuthHandle{Handle: c.parent.Handle, Name: c.parent.Name, Auth: session},
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{
			Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: secret}),
		}},
		InPublic: tpm2.New2B(tpm2.TPMTPublic{
			Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256,
			// Without NoDA somebody who guesses at another object would lock this one.
			ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, NoDA: true, UserWithAuth: policy == nil},
			AuthPolicy:       tpm2.TPM2BDigest{Buffer: policy},
		}),
	}.Execute(c.line)
	if err != nil {
		return sealed{}, fmt.Errorf("sealing a key: %w", classify(err))
	}
	return sealed{public: made.OutPublic.Bytes(), private: made.OutPrivate.Buffer}, nil
}

// unseal opens what seal made. p are the PCRs of its policy.
func (c *chip) unseal(s sealed, p pcrs) ([]byte, error) {
	public := tpm2.BytesAs2B[tpm2.TPMTPublic](s.public)
	contents, err := public.Contents()
	if err != nil {
		return nil, fmt.Errorf("%w: the public part of a sealed key cannot be read", ErrDamaged)
	}
	name, err := tpm2.ObjectName(contents)
	if err != nil {
		return nil, fmt.Errorf("%w: a sealed key cannot be named", ErrDamaged)
	}
	loaded, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: c.parent.Handle, Name: c.parent.Name, Auth: tpm2.PasswordAuth(nil)},
		InPrivate:    tpm2.TPM2BPrivate{Buffer: s.private},
		InPublic:     public,
	}.Execute(c.line)
	if err != nil {
		return nil, fmt.Errorf("loading a sealed key: %w", ofParts(err))
	}
	defer c.flush(loaded.ObjectHandle)
	session, end, err := c.authorize(p, tpm2.AESEncryption(128, tpm2.EncryptOut))
	if err != nil {
		return nil, err
	}
	defer end()
	out, err := tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: loaded.ObjectHandle, Name: *name, Auth: session}}.Execute(c.line)
	if err != nil {
		return nil, fmt.Errorf("unsealing a key: %w", classify(err))
	}
	return out.OutData.Buffer, nil
}

// authorize makes a session in which the secret is encrypted, with a key that only the holder of the
// storage key can know, and which meets the policy of PCRs if there is one. One that the TPM
// library would make and end by itself stays behind when a command is interrupted.
func (c *chip) authorize(p pcrs, encrypted tpm2.AuthOption) (tpm2.Session, func(), error) {
	begin := tpm2.HMACSession
	if !p.none() {
		begin = tpm2.PolicySession
	}
	session, end, err := begin(c.line, tpm2.TPMAlgSHA256, nonceSize, encrypted, tpm2.Salted(c.parent.Handle, c.public))
	if err != nil {
		return nil, nil, fmt.Errorf("a session: %w", classify(err))
	}
	done := func() { _ = end() }
	if p.none() {
		return session, done, nil
	}
	if _, err := (tpm2.PolicyPCR{PolicySession: session.Handle(), Pcrs: p.selection()}).Execute(c.line); err != nil {
		done()
		return nil, nil, fmt.Errorf("PCRs %s: %w", p, classify(err))
	}
	return session, done, nil
}

// read reads PCRs.
func (c *chip) read(p pcrs) ([][]byte, error) {
	if p.none() {
		return nil, nil
	}
	answer, err := tpm2.PCRRead{PCRSelectionIn: p.selection()}.Execute(c.line)
	if err != nil {
		return nil, fmt.Errorf("PCRs %s: %w", p, classify(err))
	}
	var values [][]byte
	for _, digest := range answer.PCRValues.Digests {
		values = append(values, digest.Buffer)
	}
	if len(values) != len(p.numbers) {
		return nil, fmt.Errorf("%w: the TPM tells %d of the PCRs %s: it does not keep this bank: take another one", kmsplugin.ErrKeyDisabled, len(values), p)
	}
	return values, nil
}

func (c *chip) flush(handle tpm2.TPMHandle) {
	_, _ = tpm2.FlushContext{FlushHandle: handle}.Execute(c.line)
}

// Codes by what is to be done.
var (
	full = []tpm2.TPMRC{tpm2.TPMRCObjectMemory, tpm2.TPMRCObjectHandles, tpm2.TPMRCSessionMemory, tpm2.TPMRCSessionHandles, tpm2.TPMRCMemory, tpm2.TPMRCContextGap, tpm2.TPMRCNVRate}
	// moved are those of a PCR that is not what it was.
	moved = []tpm2.TPMRC{tpm2.TPMRCPolicyFail, tpm2.TPMRCPCRChanged, tpm2.TPMRCPolicy}
	wrong = []tpm2.TPMRC{tpm2.TPMRCBadAuth, tpm2.TPMRCAuthFail}
)

// classify gives what a TPM answered its class, and says what to do.
func classify(err error) error {
	is := func(codes ...tpm2.TPMRC) bool {
		for _, code := range codes {
			if errors.Is(err, code) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.Is(err, kmsplugin.ErrUnavailable):
		return err
	case is(tpm2.TPMRCLockout):
		return fmt.Errorf("%w: the TPM is locked, as somebody has guessed too often: wait, or tpm2_dictionarylockout --clear-lockout: %w", kmsplugin.ErrThrottled, err)
	case is(full...):
		return fmt.Errorf("%w: the TPM is full of what others have loaded: use /dev/tpmrm0, which shares it, or end who else uses it: %w", kmsplugin.ErrThrottled, err)
	case is(moved...):
		return fmt.Errorf("%w: the machine booted otherwise than when the keys were sealed, or a PCR was extended since: boot it as it was, or seal them again with the recovery key (recover): %w", kmsplugin.ErrKeyDisabled, err)
	case is(wrong...):
		return fmt.Errorf("%w: the TPM wants a password: %w", kmsplugin.ErrDenied, err)
	case is(tpm2.TPMRCInitialize):
		return fmt.Errorf("%w: the TPM was not started (TPM2_Startup), as the firmware does: reboot: %w", kmsplugin.ErrUnavailable, err)
	case is(tpm2.TPMRCFailure):
		return fmt.Errorf("%w: the TPM has failed its own test: switch the machine off and on; if that does not help it is dead, and the recovery key is what there is: %w", kmsplugin.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: the TPM refuses, or somebody sits between: %w", kmsplugin.ErrUnavailable, err)
}

// ofParts is classify for the two parts of a sealed key: what the TPM finds wrong in them it finds again whenever
// it is asked.
func ofParts(err error) error {
	var wrong tpm2.TPMFmt1Error
	if errors.As(err, &wrong) {
		if inPart, _ := wrong.Parameter(); inPart {
			return fmt.Errorf("%w: the TPM does not take it for its own: it was changed, or sealed by another one: restore a copy, or seal it again with the recovery key (recover): %w", ErrDamaged, err)
		}
	}
	return classify(err)
}

// ofOwner is classify for what the owner of the TPM may do alone.
func ofOwner(err error) error {
	for _, code := range wrong {
		if errors.Is(err, code) {
			return fmt.Errorf("%w: the owner hierarchy of the TPM has a password, and this program takes one without: tpm2_changeauth -c owner: %w", kmsplugin.ErrDenied, err)
		}
	}
	if errors.Is(err, tpm2.TPMRCHierarchy) {
		return fmt.Errorf("%w: the owner hierarchy of the TPM is switched off: switch it on in the firmware: %w", kmsplugin.ErrDenied, err)
	}
	return classify(err)
}
