package bundle

import (
	"fmt"
	"strconv"
	"strings"
)

// KeyID numbers a plugin, from 1 on. A higher one was made later, and none is used
// twice in a cluster.
type KeyID uint64

// ParseKeyID reads a keyID as [KeyID.String] writes it: digits alone, without a zero
// before them.
func ParseKeyID(text string) (KeyID, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, fmt.Errorf("%.40q is no keyID: a keyID is a number from 1 on, such as 7", text)
	}
	return KeyID(n), nil
}

// String is the number.
func (id KeyID) String() string { return strconv.FormatUint(uint64(id), 10) }

const (
	beforeKeyID = "kms-"
	afterKeyID  = ".sock"
)

// Socket is the name of the plugin's socket, without its folder: kms-7.sock.
func (id KeyID) Socket() string { return beforeKeyID + id.String() + afterKeyID }

// ParseSocket is the keyID in the name of a socket, as [KeyID.Socket] makes it.
func ParseSocket(name string) (KeyID, error) {
	digits, begins := strings.CutPrefix(name, beforeKeyID)
	digits, ends := strings.CutSuffix(digits, afterKeyID)
	if !begins || !ends {
		return 0, fmt.Errorf("%.120q is no socket of a plugin: its name is kms-KEYID.sock, such as kms-7.sock", name)
	}
	id, err := ParseKeyID(digits)
	if err != nil {
		return 0, fmt.Errorf("socket %.120q: %w", name, err)
	}
	return id, nil
}
