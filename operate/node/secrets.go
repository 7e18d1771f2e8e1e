package node

import (
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// secrets are what must not be shown of what a plugin writes: each line of each file that it was
// given. A key is a file of many lines, of which a log has one on each line of its own or,
// quoted, all on one.
type secrets [][]byte

const (
	// minSecret is from which length on one is looked for, in bytes: shorter ones are in every text.
	minSecret = 4
	// maxSecrets bounds the lines that are looked for. The shortest are left out first.
	maxSecrets = 4096
)

// add has the content of a file of a bundle be looked for too, unless it is of a ConfigMap.
func (s *secrets) add(name string, content []byte) {
	if part, _, err := bundle.ParsePart(name); err == nil && part.Source == bundle.ConfigMap {
		return
	}
	for _, line := range bytes.Split(content, []byte("\n")) {
		line = bytes.TrimSpace(line)
		known := func(other []byte) bool { return bytes.Equal(other, line) }
		if len(line) >= minSecret && !slices.ContainsFunc(*s, known) {
			*s = append(*s, bytes.Clone(line))
		}
	}
	// One that begins with another is taken out before that.
	slices.SortFunc(*s, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) })
	*s = (*s)[:min(len(*s), maxSecrets)]
}

// secretsOf are those in the files that an instance has, the former ones that are left too.
func secretsOf(s Spec) secrets {
	var all secrets
	_ = filepath.WalkDir(s.Folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Dir(path) == s.Folder {
			return nil // what cannot be read now is not looked for
		}
		if content, err := os.ReadFile(path); err == nil {
			all.add(e.Name(), content)
		}
		return nil
	})
	return all
}
