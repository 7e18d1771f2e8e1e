package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/kube-atrest/atrest/bench/measure"
)

// save writes the results into the folder and gives the names of the files.
func save(o *options, m machine, book *measure.Book, found []finding) (string, error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return "", err
	}
	plots, err := draw(book, o)
	if err != nil {
		return "", err
	}
	files := map[string][]byte{}
	var names []string
	add := func(name string, content []byte) {
		files[name] = content
		names = append(names, name)
	}
	var figures, table, about bytes.Buffer
	if err := book.Write(&figures, m.cpu); err != nil {
		return "", err
	}
	if err := (markdown{&table}).write(m, o, found, plots); err != nil {
		return "", err
	}
	m.write(&about)
	add("report.md", table.Bytes())
	add("benchmarks.txt", figures.Bytes())
	add("machine.txt", about.Bytes())
	for _, p := range plots {
		add(p.file+".svg", p.svg)
		add(p.file+".png", p.png)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(o.out, name), content, 0o644); err != nil {
			return "", err
		}
	}
	return strings.Join(names, ", "), nil
}
