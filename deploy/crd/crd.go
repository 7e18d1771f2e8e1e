// Package crd has the CustomResourceDefinitions of operate/api, which are generated from its
// types: what is applied to a cluster before there can be an object of them.
package crd

import "embed"

// Files are the definitions, one a file, in YAML.
//
//go:embed *.yaml
var Files embed.FS
