package conformance

import "bytes"

// Many ciphertexts begin with something that is the key's, such as "vault:v2:". Where
// that is so it tells which key made one, whatever the key_id beside it says.

// head is what all ciphertexts begin with.
func head(all []*sealed) []byte {
	if len(all) == 0 {
		return nil
	}
	common := all[0].Ciphertext
	for _, w := range all[1:] {
		common = common[:sameLength(common, w.Ciphertext)]
	}
	return common
}

// sameLength is how many bytes two begin with.
func sameLength(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// tell reports whether the heads of two keys tell their ciphertexts apart, within the
// first steady bytes, which stay the same for one key as time passes and calls are
// made. Without that, a time or a counter in front would be taken for a key.
func tell(a, b []byte, steady int) bool {
	n := sameLength(a, b)
	return n < len(a) && n < len(b) && n < steady
}

// madeBy reports whether a ciphertext begins as those of one key do and not as those of
// another.
func madeBy(w *sealed, key, other []byte) bool {
	n := sameLength(key, other) + 1
	return bytes.HasPrefix(w.Ciphertext, key[:n])
}
