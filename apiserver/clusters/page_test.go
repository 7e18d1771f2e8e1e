package clusters

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// page is a recipe: its blocks of a language, in their order.
type page struct{ blocks map[string][]string }

func readPage(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "clusters", name))
	require.NoError(t, err)
	p := page{map[string][]string{}}
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
	return found[0]
}
