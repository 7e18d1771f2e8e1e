package apicase

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// odd are texts at which two ways to say one rule part, if any do. None is empty, as a Go
// value cannot tell an empty text from one that is not there.
var odd = append([]string{
	" ", "a", "A", "0", "1", "00", "01", "-1", "10000000000", "-", "a-", "-a", "a.", ".a", "a..b", "a_b", "_", "~", "*", "*.*", "a b", "\t", "a\nb", "a\n",
	"\x00", "\x7f", "\u0085", "\u00a0", "\u2028", "é", "日本", "\U0001f511", "İ", "ſ", "K",
	"/", "//", "///", "a/", "/a", "/a/", "a//b", ".", "..", "./a", "a/.", "a/..", "a/../b", "/..", "/../a", "/a/./b", "/...", "/a/..b", "/a b", "/é", "/a~", "/a\x7f", "a/b/c",
	"https://", "https://h", "https://h/", "https://h//", "https://h/.", "https://h:", "https://h:0", "https://h:99999", "https://h:x", "https://:1", "https:///p", "https:h", "https:/h", "//h", "h:1",
	"HTTPS://h", "http://h", "ftp://h", "https://h?", "https://h/?a=b", "https://h?a;b", "https://h#", "https://h/#", "https://h/#a", "https://h/%23", "https://h/%", "https://h%20", "https://h/%2F",
	"https://u@h", "https://u:p@h", "https://h/@", "https://[::1]", "https://[::1", "https://[::1%25lo]", "https://a b", "https://h\\", "https://é", "https://h\n", " https://h", "https://h ",
	"root", "Root", "root/", "sys", "identity", "/root", "root ", "t/keys/k", "t/keys/-", "t/keys/a-b", "t/keys/k\n", "/keys/kkk", "a/keys/keys/k", "a/./keys/k", ".../keys/k",
	"1s", "1h", "59m59s", "1h1m", "1m1h", "100ms", "99ms", "60s", "60001ms", "1m1ms", "0s", "0h0m", "-1s", "+1s", "1.5s", ".5s", "1µs", "1us", "1d", "8760h", "8760h1ms", "99999h99999h99999h99999h", "1s1s1s1s1s", "100000h", "1S",
	"v1", "a/v1", "A/v1", "a.b/v1", "a/v1/b", "/v1", "a/", "vaultkmsconfigs", "secrets", "secrets.", "pods/log", "a.extensions", "extensions", "a.events.k8s.io", "apiserveripinfo", "apiserveripinfo.a",
	"identity", "aescbc", "KMS", "kms", "Vault", "PKCS11", "TPM", "KeyFile", "AppRole", "Token", "JWT", "Cert", "cluster",
}, long()...)

// long are texts about the limits that there are.
func long() (all []string) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, n := range []int{10, 11, 32, 33, 63, 64, 65, 175, 176, 182, 183, 253, 254, 256, 257, 317, 318, 512, 513, 1024, 1025, 1542, 1543, 4096, 4097} {
		all = append(all, strings.Repeat("a", n), "/"+strings.Repeat("a", n-1), strings.Repeat("é", n))
	}
	for _, name := range []string{"q.io/x", "q.io//x", "q.io/x/", "q.io", "q/x", "localhost/x", "localhost:5000/x", "localhosts/x", "q.io:1/x", "q.io:123456/x", "q.io:/x", ".io/x", "q..io/x", "-.-/x", "q.io/X", "q.io/..", "q.io/x:t", "q.io/x@", "@q.io/x", "https://q.io/x", "q.io/é"} {
		all = append(all, name+digest, name+digest+"0", name+strings.Replace(digest, "a", "A", 1), digest+name)
	}
	return all
}

// An OddObject is one of the accepted objects with one odd text in it.
type OddObject struct {
	Base, At, Text string
	Object         map[string]any
}

// String tells what is odd of it.
func (o OddObject) String() string { return fmt.Sprintf("%s: %s is %.80q", o.Base, o.At, o.Text) }

// Odd has each odd text at each place of a text below spec, of each base.
func Odd(t *testing.T) iter.Seq[OddObject] {
	return func(yield func(OddObject) bool) {
		seen := map[string]bool{}
		for _, c := range Load(t) {
			if len(c.Errors) > 0 || c.Served {
				continue
			}
			accepted := c.Object(t)
			for _, at := range texts(accepted["spec"].(map[string]any), "spec") {
				place := strings.Join(at, ".")
				if seen[c.Base+" "+place] {
					continue
				}
				seen[c.Base+" "+place] = true
				for _, text := range odd {
					object := runtime.DeepCopyJSON(accepted)
					set(object, at, text)
					if !yield(OddObject{c.Name, place, text, object}) {
						return
					}
				}
			}
		}
	}
}

// texts are the places of all texts in an object.
func texts(object map[string]any, above ...string) (all [][]string) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := append(append([]string{}, above...), name)
		switch value := object[name].(type) {
		case string:
			all = append(all, at)
		case map[string]any:
			all = append(all, texts(value, at...)...)
		}
	}
	return all
}

func set(object map[string]any, at []string, text string) {
	for _, name := range at[:len(at)-1] {
		object = object[name].(map[string]any)
	}
	object[at[len(at)-1]] = text
}
