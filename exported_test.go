package atrest_test

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exported is how many names each package offers to others outside this project: types,
// functions, methods, constants and variables. A name is exported for somebody who uses
// it. Who makes one more raises the number here, and can say for whom; who makes one
// less lowers it. What is generated is not counted.
var exported = map[string]int{
	".": 16, "config": 46, "envelope": 81, "envelope/kmsv1": 29, "healthz": 24, "providers": 31, "reload": 27, "transformer": 27,
	"kmsplugin": 60, "kmsplugin/conformance": 41, "kmsplugin/conformance/conformancetest": 1, "kmsplugin/keyfile": 31, "kmsplugin/pkcs11": 18, "kmsplugin/plugintest": 7, "kmsplugin/telemetry": 12,
	"kmsplugin/tpm": 40, "kmsplugin/tpm/swtpmtest": 5,
	"operate/audit": 76, "operate/audit/etcd": 12, "operate/audit/snapshot": 11, "operate/bundle": 93, "operate/controller": 3, "operate/fleet": 43, "operate/keys": 63, "operate/lost": 46, "operate/migrate": 41, "operate/node": 67, "operate/node/localapi": 4, "operate/overview": 19,
	"operate/preflight": 24, "operate/proof": 23, "operate/reencrypt": 22, "operate/retire": 20, "operate/rollout": 57,
	"kmsplugin/vault": 21, "kmsplugin/vault/vaulttest": 50,
	"operate/rotation": 82, "operate/rotation/drive": 5, "operate/rotation/edit": 13, "operate/rotation/observe": 4,
	"deploy/crd": 1, "operate/api/v1alpha1": 112,
}

func TestWhatIsExportedIsCounted(t *testing.T) {
	found := map[string]int{}
	for _, s := range project(t) {
		if s.files[0].Name.Name == "main" || !isForOthers(s.folder) {
			continue
		}
		for _, file := range s.files {
			if !ast.IsGenerated(file) {
				found[s.folder] += namesOf(file)
			}
		}
	}
	require.Equal(t, exported, found)
}

// isForOthers reports whether a package of a folder can be used outside this project.
func isForOthers(folder string) bool {
	first, _, _ := strings.Cut(folder, "/")
	return !strings.Contains("/"+folder+"/", "/internal/") && first != "bench" && first != "apiserver"
}

// namesOf is how many names a file exports.
func namesOf(file *ast.File) (n int) {
	count := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			count(d.Name)
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					count(spec.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						count(name)
					}
				}
			}
		}
	}
	return n
}
