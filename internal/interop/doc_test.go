package interop

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/stored"
)

// root is that of the project, seen from here.
const root = "../.."

func page(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/interoperability.md")
	require.NoError(t, err)
	return string(text)
}

func TestThePageHasTheTableOfFormats(t *testing.T) {
	require.NoError(t, hasFormats(page(t)))
}

func hasFormats(text string) error {
	table := "\n| provider | prefix | name of | bound to the etcd key |\n|---|---|---|---|\n"
	for _, f := range stored.Formats {
		bound := map[bool]string{true: "yes", false: "no"}[f.BoundToKey]
		table += fmt.Sprintf("| %s | `%s` | %s | %s |\n", f.Kind, f.Prefix, f.NameOf, bound)
	}
	if !strings.Contains(text, table+"\n") {
		return fmt.Errorf("the table of formats is not that of the code, which is:%s", table)
	}
	return nil
}

func TestThePageHasTheDifferencesThatTheSuiteAllows(t *testing.T) {
	require.NoError(t, hasDifferences(page(t)))
}

func hasDifferences(text string) error {
	var want []string
	for _, d := range differences {
		want = append(want, "- "+string(d))
	}
	if got := regexp.MustCompile(`(?m)^- .*$`).FindAllString(text, -1); !slices.Equal(want, got) {
		return fmt.Errorf("the differences on the page are %q, in the suite %q", got, want)
	}
	return nil
}

// TestWhatThePageLinksToIsThere is for tests, which have to be in the file that
// their link leads to, and for everything else.
func TestWhatThePageLinksToIsThere(t *testing.T) {
	named, err := checkLinks(page(t))
	require.NoError(t, err)
	require.Greater(t, named, 100, "the page names its tests")
}

var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)

func checkLinks(text string) (tests int, err error) {
	known := map[string][]string{}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		file := filepath.Join(root, "docs", filepath.FromSlash(m[2]))
		if _, err := os.Stat(file); err != nil {
			return tests, err
		}
		if !strings.HasPrefix(m[1], "Test") {
			continue
		}
		if known[file] == nil {
			if known[file], err = testsIn(file); err != nil {
				return tests, err
			}
		}
		if !slices.Contains(known[file], m[1]) {
			return tests, fmt.Errorf("%s has no %s", file, m[1])
		}
		tests++
	}
	return tests, nil
}

// testsIn lists the tests of a file.
func testsIn(file string) ([]string, error) {
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var tests []string
	for _, d := range source.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
			tests = append(tests, f.Name.Name)
		}
	}
	return tests, nil
}

// Where kube-apiserver's tests of encryption at rest are: all below the first,
// and the ones named of the second, which are about more than that.
var (
	theirFolders = []string{
		"k8s.io/apiserver/pkg/storage/value",
		"k8s.io/apiserver/pkg/server/options/encryptionconfig",
		"k8s.io/kms/pkg/service",
		"k8s.io/kms/pkg/util",
		integrationTests,
	}
	theirFiles = map[string][]string{
		"k8s.io/apiserver/pkg/apis/apiserver/validation/validation_encryption_test.go": nil,
		"k8s.io/apiserver/pkg/apis/apiserver/v1/defaults_test.go":                      nil,
		"k8s.io/apiserver/pkg/server/options/etcd_test.go":                             {"TestKMSHealthzEndpoint"},
	}
)

// theirTests are kube-apiserver's tests by file.
func theirTests(t testing.TB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, folder := range theirFolders {
		top := folderOf(t, folder)
		require.NoError(t, filepath.WalkDir(top, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, "_test.go") {
				return err
			}
			tests, err := testsIn(file)
			if inside, _ := filepath.Rel(top, file); len(tests) > 0 {
				all[path.Join(folder, filepath.ToSlash(inside))] = tests
			}
			return err
		}))
	}
	for file, only := range theirFiles {
		tests, err := testsIn(filepath.Join(folderOf(t, path.Dir(file)), path.Base(file)))
		require.NoError(t, err)
		require.Subset(t, tests, only)
		if only == nil {
			only = tests
		}
		all[file] = only
	}
	return all
}

// TestThePageHasEveryTestOfKubeAPIServer fails when kube-apiserver has got a
// test that nobody here has thought about.
func TestThePageHasEveryTestOfKubeAPIServer(t *testing.T) {
	theirs := theirTests(t)
	require.Greater(t, len(theirs), 20)
	require.NoError(t, hasTests(page(t), theirs))
}

var (
	heading = regexp.MustCompile("^### `(.+_test.go)`$")
	row     = regexp.MustCompile("^\\| (`Test.+`) \\| (.+) \\| (.+) \\| (.*) \\|$")
	answer  = regexp.MustCompile(`^(same|better: .+|same: .+|not applicable: .+)$`)
	quoted  = regexp.MustCompile("`(Test\\w+)`")
)

func hasTests(text string, theirs map[string][]string) error {
	found, file := map[string][]string{}, ""
	for _, line := range strings.Split(text, "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			file = m[1]
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if !answer.MatchString(m[3]) || !strings.Contains(m[4], "](") {
			return fmt.Errorf("in %s: say same, better and how, or not applicable and why, and what shows it: %s", file, line)
		}
		for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
			found[file] = append(found[file], name[1])
		}
	}
	for _, file := range slices.Sorted(maps.Keys(theirs)) {
		if want, got := sorted(theirs[file]), sorted(found[file]); !slices.Equal(want, got) {
			return fmt.Errorf("%s has the tests %v, the page %v", file, want, got)
		}
	}
	if len(found) != len(theirs) {
		return fmt.Errorf("the page has the files %v", slices.Sorted(maps.Keys(found)))
	}
	return nil
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestTheChecksOfThePageCanFail(t *testing.T) {
	text, theirs := page(t), theirTests(t)
	without := func(part string) string {
		require.Contains(t, text, part)
		return strings.Replace(text, part, "", 1)
	}
	require.Error(t, hasFormats(without("| secretbox | `k8s:enc:secretbox:v1:` | key | no |\n")))
	require.Error(t, hasDifferences(without("- "+string(ivAlone)+"\n")))
	require.Error(t, hasDifferences(strings.Replace(text, "\n- ", "\n- and another\n- ", 1)))
	require.Error(t, hasTests(without("`TestPrefixFrom`, "), theirs))
	require.Error(t, hasTests(strings.Replace(text, "| same |", "| alike |", 1), theirs))
	for _, bad := range []string{"[TestNothing](../internal/interop/doc_test.go)", "[a page](../docs/none.md)"} {
		_, err := checkLinks(text + bad)
		require.Error(t, err)
	}
}
