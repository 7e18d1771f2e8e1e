package atrest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryExportedNameHasAComment(t *testing.T) {
	var missing []string
	for _, s := range project(t) {
		for _, name := range uncommented(s) {
			missing = append(missing, s.folder+": "+name)
		}
	}
	require.Empty(t, missing)
}

func TestMissingCommentsAreFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "", `
package p

type T struct{}
func (T) M() {}
func (*T) N() {}
func (*G[K]) M() {}
func F() {}
const C = 1
var V, v = 1, 2

type t struct{}
type g[K any] struct{}
func (*g[K]) M() {}
func (t) M() {}
func f() {}

// Commented one by one, in a group, and at the end of the line.
type D struct{}
// All of them.
const (
	A = 1
	B = 2
)
const (
	G = 1 // of its own
)
`, parser.ParseComments)
	require.NoError(t, err)
	require.Equal(t, []string{"T", "T.M", "T.N", "G.M", "F", "C", "V", "the package"}, uncommented(source{files: []*ast.File{file}}))
}

// uncommented lists what of a package has no comment: the package itself, and
// its exported types, functions, methods, constants and variables. A comment
// above a group of constants or variables is enough for all of them.
func uncommented(s source) []string {
	var missing []string
	described := false
	for _, file := range s.files {
		described = described || file.Doc != nil
		for _, d := range file.Decls {
			missing = append(missing, uncommentedIn(d)...)
		}
	}
	if !described {
		missing = append(missing, "the package")
	}
	return missing
}

func uncommentedIn(d ast.Decl) []string {
	var missing []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		name, visible := nameOf(d)
		if d.Doc == nil && visible {
			missing = append(missing, name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if d.Doc == nil {
				missing = append(missing, uncommentedSpec(spec)...)
			}
		}
	}
	return missing
}

func uncommentedSpec(spec ast.Spec) []string {
	var missing []string
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Doc == nil && s.Comment == nil && s.Name.IsExported() {
			missing = append(missing, s.Name.Name)
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if s.Doc == nil && s.Comment == nil && name.IsExported() {
				missing = append(missing, name.Name)
			}
		}
	}
	return missing
}

// nameOf is the name of a function, or of a method with its type, and whether
// others can see it.
func nameOf(d *ast.FuncDecl) (name string, visible bool) {
	if d.Recv == nil {
		return d.Name.Name, d.Name.IsExported()
	}
	receiver := d.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	name = types.ExprString(receiver)
	return name + "." + d.Name.Name, d.Name.IsExported() && ast.IsExported(name)
}
