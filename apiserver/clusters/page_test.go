package clusters

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// page is a recipe: its blocks of a language, in their order, and which a test used.
type page struct {
	blocks map[string][]string
	used   map[string]bool
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "clusters", name))
	require.NoError(t, err)
	p := page{map[string][]string{}, map[string]bool{}}
	for _, block := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		p.blocks[block[1]] = append(p.blocks[block[1]], block[2])
	}
	return p
}

// block is the one of a language in which something stands.
func (p page) block(t *testing.T, language, has string) string {
	t.Helper()
	var found []string
	for _, block := range p.blocks[language] {
		if strings.Contains(block, has) {
			found = append(found, block)
		}
	}
	require.Len(t, found, 1, "blocks of %s with %q", language, has)
	p.used[found[0]] = true
	return found[0]
}

// unused are the blocks that no test asked for.
func (p page) unused() (all []string) {
	for _, language := range slices.Sorted(maps.Keys(p.blocks)) {
		for _, block := range p.blocks[language] {
			if !p.used[block] {
				all = append(all, block)
			}
		}
	}
	return all
}
