//go:build cgo

package pkcs11

import cryptoki "github.com/miekg/pkcs11"

// driver is what is used of a PKCS#11 module. A call of it cannot be cancelled.
type driver interface {
	Initialize(...cryptoki.InitializeOption) error
	Finalize() error
	GetSlotList(tokenPresent bool) ([]uint, error)
	GetTokenInfo(slot uint) (cryptoki.TokenInfo, error)
	GetMechanismInfo(slot uint, m []*cryptoki.Mechanism) (cryptoki.MechanismInfo, error)
	OpenSession(slot, flags uint) (cryptoki.SessionHandle, error)
	GetSessionInfo(cryptoki.SessionHandle) (cryptoki.SessionInfo, error)
	CloseSession(cryptoki.SessionHandle) error
	GenerateRandom(h cryptoki.SessionHandle, length int) ([]byte, error)
	Login(h cryptoki.SessionHandle, user uint, pin string) error
	GetAttributeValue(cryptoki.SessionHandle, cryptoki.ObjectHandle, []*cryptoki.Attribute) ([]*cryptoki.Attribute, error)
	GenerateKey(cryptoki.SessionHandle, []*cryptoki.Mechanism, []*cryptoki.Attribute) (cryptoki.ObjectHandle, error)
	// find lists the objects that fit a template.
	find(cryptoki.SessionHandle, []*cryptoki.Attribute) ([]cryptoki.ObjectHandle, error)
	// seal encrypts with AES-GCM, and tells the IV that the token used, which need not be
	// the one that it was given.
	seal(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, plaintext []byte) (ciphertext, used []byte, err error)
	// open is the way back.
	open(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, ciphertext []byte) ([]byte, error)
}

// library is a module as it was loaded.
type library struct{ *cryptoki.Ctx }

func (l library) find(h cryptoki.SessionHandle, template []*cryptoki.Attribute) ([]cryptoki.ObjectHandle, error) {
	if err := l.FindObjectsInit(h, template); err != nil {
		return nil, err
	}
	var all []cryptoki.ObjectHandle
	for {
		some, _, err := l.FindObjects(h, 100)
		if err != nil {
			_ = l.FindObjectsFinal(h)
			return nil, err
		}
		if len(some) == 0 {
			return all, l.FindObjectsFinal(h)
		}
		all = append(all, some...)
	}
}

func (l library) seal(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, plaintext []byte) (ciphertext, used []byte, err error) {
	params := cryptoki.NewGCMParams(iv, aad, 8*tagSize)
	defer params.Free()
	if err := l.EncryptInit(h, gcm(params), key); err != nil {
		return nil, nil, err
	}
	ciphertext, err = l.Encrypt(h, plaintext)
	return ciphertext, params.IV(), err
}

func (l library) open(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, ciphertext []byte) ([]byte, error) {
	params := cryptoki.NewGCMParams(iv, aad, 8*tagSize)
	defer params.Free()
	if err := l.DecryptInit(h, gcm(params), key); err != nil {
		return nil, err
	}
	return l.Decrypt(h, ciphertext)
}

func gcm(params *cryptoki.GCMParams) []*cryptoki.Mechanism {
	return []*cryptoki.Mechanism{cryptoki.NewMechanism(cryptoki.CKM_AES_GCM, params)}
}
