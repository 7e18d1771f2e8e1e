package main

import (
	"archive/zip"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"
)

// pack gzip|zstd|zip TO FILE..., or pack half TO FILE: what operators do to backups.
func pack(ts *testscript.TestScript, _ bool, args []string) {
	to, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	defer to.Close()
	var w io.WriteCloser
	switch args[0] {
	case "gzip":
		w = gzip.NewWriter(to)
	case "zstd":
		w, err = zstd.NewWriter(to)
		ts.Check(err)
	case "half":
		content := ts.ReadFile(args[2])
		_, err := to.WriteString(content[:len(content)/2])
		ts.Check(err)
		return
	case "zip":
		archive := zip.NewWriter(to)
		for _, name := range args[2:] {
			file, err := archive.Create(filepath.Base(name))
			ts.Check(err)
			_, err = io.WriteString(file, ts.ReadFile(name))
			ts.Check(err)
		}
		ts.Check(archive.Close())
		return
	}
	_, err = io.WriteString(w, ts.ReadFile(args[2]))
	ts.Check(err)
	ts.Check(w.Close())
}
