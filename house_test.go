package atrest_test

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
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the path of this module, under which those of the workspace are.
const module = "github.com/kube-atrest/atrest"

// room is a folder and what its code, tests aside, may import.
type room struct {
	uses  []string // folders of the project
	never []string // packages from outside
}

// rooms is the house: every folder with Go code is in one. What ends in "/..."
// has all that is below it too. An arrow that is not here is either a
// mistake or a change of the design, which CONTRIBUTING.md then has to follow.
var rooms = map[string]room{
	".": {uses: []string{"config", "providers", "healthz", "reload", "envelope", "internal/again", "internal/hashed", "internal/inuse", "internal/lookahead", "internal/metrics", "internal/outage", "internal/served"}},

	// What is in an apiserver.
	"config": {uses: []string{"internal/hashed", "internal/redact", "internal/stored"},
		never: []string{"os", "net/http", "google.golang.org/grpc/...", "k8s.io/klog/...", "github.com/fsnotify/fsnotify"}},
	"providers": {uses: []string{"config", "healthz", "envelope", "envelope/kmsv1", "transformer", "internal/metrics", "internal/stored"},
		never: []string{"os", "net/http", "github.com/fsnotify/fsnotify"}},
	"reload":  {uses: []string{"internal/hashed", "internal/tally"}, never: []string{"k8s.io/apiserver/pkg/apis/...", "google.golang.org/grpc/..."}},
	"healthz": {never: []string{"os", "google.golang.org/grpc/..."}},

	"envelope": {uses: []string{"internal/erase", "internal/gcm", "internal/hashed", "internal/plugin", "internal/redact", "internal/stored", "internal/tally"},
		never: []string{"os", "net/http", "k8s.io/klog/..."}},
	"envelope/kmsv1": {uses: []string{"envelope", "transformer", "internal/erase", "internal/plugin", "internal/redact"},
		never: []string{"os", "net/http", "k8s.io/klog/..."}},
	"transformer": {uses: []string{"internal/gcm", "internal/metrics", "internal/redact", "internal/stored", "internal/tally"},
		never: []string{"os", "net/...", "k8s.io/klog/..."}},

	// What looks after a fleet, each of use alone, and the command above.
	"operate/audit/...":        {uses: []string{"config", "providers", "envelope", "internal/hashed", "internal/stored", "operate/audit/..."}, never: []string{"k8s.io/klog/..."}},
	"operate/node":             {uses: []string{"config", "envelope", "internal/filelock", "internal/hashed", "internal/plugin", "internal/wholefile", "operate/bundle", "operate/preflight"}, never: []string{"k8s.io/apiserver/...", "k8s.io/client-go/..."}},
	"operate/node/localapi":    {uses: []string{"internal/hashed", "operate/fleet", "operate/node", "operate/rotation"}, never: []string{"k8s.io/apiserver/...", "k8s.io/klog/..."}},
	"operate/preflight":        {uses: []string{"config", "envelope", "envelope/kmsv1", "internal/plugin", "internal/stored", "kmsplugin/conformance", "operate/bundle"}, never: []string{"k8s.io/klog/..."}},
	"operate/api/...":          {never: []string{"os", "net/http", "google.golang.org/grpc/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/controller":       {uses: []string{"operate/api/v1alpha1", "operate/bundle", "operate/keys"}, never: []string{"os", "net/http", "k8s.io/apiserver/...", "k8s.io/klog/..."}},
	"operate/bundle":           {uses: []string{"config", "internal/hashed", "internal/redact", "internal/wholefile"}, never: []string{"net/http", "google.golang.org/grpc/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/migrate":          {uses: []string{"internal/kubeapi", "internal/wholefile"}, never: []string{"k8s.io/apiserver/...", "k8s.io/klog/..."}},
	"operate/keys":             {uses: []string{"config", "internal/hashed", "internal/redact", "operate/api/v1alpha1", "operate/bundle", "operate/rotation"}, never: []string{"os", "net/...", "google.golang.org/grpc/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/rotation":         {never: []string{"os", "net/...", "k8s.io/..."}},
	"operate/rotation/drive":   {uses: []string{"operate/rotation"}, never: []string{"os", "net/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/rotation/edit":    {uses: []string{"config", "internal/hashed", "operate/rotation"}, never: []string{"os", "net/...", "k8s.io/..."}},
	"operate/rotation/observe": {uses: []string{"healthz", "operate/rotation"}, never: []string{"k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/fleet":            {uses: []string{"healthz", "internal/hashed", "internal/kubeapi", "operate/rotation/..."}, never: []string{"k8s.io/apiserver/...", "k8s.io/klog/..."}},
	// These put them together.
	"operate/proof": {uses: []string{"operate/audit", "operate/fleet", "operate/migrate", "operate/rotation"},
		never: []string{"os", "net/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/overview": {uses: []string{"internal/hashed", "operate/audit", "operate/fleet", "operate/migrate", "operate/proof", "operate/rotation"},
		never: []string{"os", "net/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/lost": {uses: []string{"config", "envelope", "operate/audit", "operate/fleet", "operate/migrate", "operate/proof"},
		never: []string{"os", "net/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/reencrypt": {uses: []string{"config", "operate/audit", "operate/fleet", "operate/migrate", "operate/preflight", "operate/proof", "operate/rotation"},
		never: []string{"os", "net/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/retire": {uses: []string{"config", "internal/hashed", "operate/audit", "operate/fleet", "operate/migrate", "operate/proof", "operate/rotation", "operate/rotation/observe"},
		never: []string{"os", "net/...", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"operate/rollout": {uses: []string{"config", "envelope", "internal/filelock", "internal/hashed", "internal/wholefile", "operate/audit", "operate/fleet", "operate/migrate", "operate/preflight", "operate/proof", "operate/reencrypt", "operate/rotation/..."},
		never: []string{"net/http", "k8s.io/apiserver/...", "k8s.io/client-go/...", "k8s.io/klog/..."}},
	"deploy/crd": {},
	"cmd/...":    {uses: []string{"config", "internal/hashed", "internal/wholefile", "kmsplugin/conformance", "operate/...", "cmd/..."}},

	"internal/inuse":     {uses: []string{"config", "providers", "healthz", "reload", "envelope", "transformer", "internal/metrics"}, never: []string{"os", "net/http"}},
	"internal/served":    {uses: []string{"config", "healthz", "internal/kubeapi"}, never: []string{"os", "google.golang.org/grpc/..."}},
	"internal/lookahead": {uses: []string{"internal/stored"}, never: []string{"k8s.io/kms/...", "k8s.io/client-go/..."}},

	"internal/again":   {uses: []string{"internal/kubeapi"}, never: []string{"os", "google.golang.org/grpc/..."}},
	"internal/metrics": {uses: []string{"internal/hashed", "internal/stored", "internal/tally"}},
	"internal/erase":   {},
	"internal/gcm":     {},
	"internal/hashed":  {},
	"internal/kubeapi": {never: []string{"os", "k8s.io/apiserver/..."}},
	"internal/outage":  {uses: []string{"envelope", "reload", "internal/again"}, never: []string{"google.golang.org/grpc/..."}},
	"internal/plugin":  {uses: []string{"internal/hashed", "internal/stored"}},
	"internal/redact":  {},
	"internal/stored":  {},
	"internal/tally":   {},
	// Of the file system.
	"internal/filelock":  {},
	"internal/wholefile": {},
	// For tests alone.
	"internal/apicase":     {},
	"internal/bubble":      {},
	"internal/etcdtest":    {},
	"internal/explore":     {},
	"internal/faultplugin": {},
	"internal/interop":     {},
	"internal/unenforced":  {},
	// For what measures alone.
	"internal/measure": {uses: []string{"envelope", "internal/stored", "kmsplugin/..."}},

	"kmsplugin/...": {uses: []string{"internal/filelock", "internal/hashed", "internal/redact", "kmsplugin/..."}, never: []string{"k8s.io/apiserver/..."}},
	"bench/...":     {uses: []string{"..."}},
	"apiserver/...": {uses: []string{".", "config/...", "deploy/...", "providers", "operate/...", "envelope/...", "transformer/...", "reload/...", "healthz/...",
		"internal/...", "kmsplugin/...", "apiserver/..."}},
}

// belowProviders know of apiservers how a value is transformed, and no more.
var belowProviders = []string{"envelope/...", "transformer", "internal/..."}

func TestImportsPointDownwards(t *testing.T) {
	require.Empty(t, strayArrows(importsOf(project(t))))
}

func TestEveryRoomIsInUse(t *testing.T) {
	imports := importsOf(project(t))
	for name := range rooms {
		used := slices.ContainsFunc(slices.Collect(maps.Keys(imports)), func(folder string) bool { return within(folder, name) })
		require.True(t, used, "no Go code in %s: take it out of the rooms", name)
	}
}

func TestStrayArrowsAreFound(t *testing.T) {
	for name, imports := range map[string]map[string][]string{
		"reload may not import envelope":                          {"reload": {module + "/envelope"}},
		"config may not import the root package":                  {"config": {module}},
		"envelope may not import kmsplugin/keyfile":               {"envelope": {module + "/kmsplugin/keyfile"}},
		"apiserver/e2e may not import bench":                      {"apiserver/e2e": {module + "/bench"}},
		"envelope may not import net/http":                        {"envelope": {"net/http"}},
		"envelope may not import k8s.io/apiserver/pkg/server":     {"envelope": {"k8s.io/apiserver/pkg/server"}},
		"internal/stored may not import k8s.io/apiserver/pkg/x":   {"internal/stored": {"k8s.io/apiserver/pkg/x"}},
		"attic has no room: give it one, with what it may import": {"attic": {"fmt"}},
	} {
		require.Equal(t, []string{name}, strayArrows(imports))
	}
}

// strayArrows says which imports, by folder, the rooms do not have.
func strayArrows(imports map[string][]string) []string {
	var stray []string
	for _, folder := range slices.Sorted(maps.Keys(imports)) {
		r, ok := roomOf(folder)
		if !ok {
			stray = append(stray, folder+" has no room: give it one, with what it may import")
			continue
		}
		for _, path := range imports[folder] {
			if !r.mayImport(path) || !mayKnow(folder, path) {
				stray = append(stray, fmt.Sprintf("%s may not import %s", shown(folder), shown(path)))
			}
		}
	}
	return stray
}

func roomOf(folder string) (room, bool) {
	for name, r := range rooms {
		if within(folder, name) {
			return r, true
		}
	}
	return room{}, false
}

func (r room) mayImport(path string) bool {
	if folder, ours := folderOf(path); ours {
		return slices.ContainsFunc(r.uses, func(pattern string) bool { return within(folder, pattern) })
	}
	return !slices.ContainsFunc(r.never, func(pattern string) bool { return within(path, pattern) })
}

// mayKnow reports whether folder may import a package of k8s.io/apiserver.
func mayKnow(folder, path string) bool {
	below := slices.ContainsFunc(belowProviders, func(pattern string) bool { return within(folder, pattern) })
	switch {
	case !below || !within(path, "k8s.io/apiserver/..."):
		return true
	case path == "k8s.io/apiserver/pkg/storage/value":
		return true
	case folder == "internal/outage", folder == "internal/again":
		return true // they stand between an apiserver's storage and its resources
	}
	return folder == "internal/metrics" && strings.HasSuffix(path, "/metrics")
}

// folderOf is the folder of one of the project's packages.
func folderOf(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func shown(path string) string {
	switch folder, ours := folderOf(path); {
	case folder == ".":
		return "the root package"
	case ours:
		return folder
	}
	return path
}

// within reports whether a path is the one that pattern names, or below it if
// pattern ends in "/...".
func within(path, pattern string) bool {
	parent, tree := strings.CutSuffix(pattern, "...")
	return path == strings.TrimSuffix(parent, "/") || tree && strings.HasPrefix(path, parent)
}

// source is the Go code in a folder, tests aside.
type source struct {
	folder string
	files  []*ast.File
}

// project is all Go code of the workspace, whatever system it is for.
func project(t *testing.T) []source {
	t.Helper()
	folders := map[string][]*ast.File{}
	require.NoError(t, filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		folder := path.Dir(filepath.ToSlash(name))
		folders[folder] = append(folders[folder], file)
		return err
	}))
	require.Contains(t, folders, ".")
	var all []source
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		all = append(all, source{folder, folders[folder]})
	}
	return all
}

func importsOf(sources []source) map[string][]string {
	imports := map[string][]string{}
	for _, s := range sources {
		imports[s.folder] = nil
		for _, file := range s.files {
			for _, spec := range file.Imports {
				path, _ := strconv.Unquote(spec.Path.Value) // the parser has unquoted it before
				imports[s.folder] = append(imports[s.folder], path)
			}
		}
		slices.Sort(imports[s.folder])
		imports[s.folder] = slices.Compact(imports[s.folder])
	}
	return imports
}

func TestBubblesAreMadeInOnePlace(t *testing.T) {
	require.NoError(t, filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") || name == "house_test.go" {
			return err
		}
		text, err := os.ReadFile(name)
		require.NotContains(t, string(text), "synctest.Test(", "%s: use internal/bubble, which does by FIPS 140-3, too", name)
		return err
	}))
}
