package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// output is the value of the flag --output.
type output string

func (o *output) addFlag(flags *pflag.FlagSet) {
	flags.StringVarP((*string)(o), "output", "o", "table", "table, json or yaml")
}

func (o output) check() error {
	switch o {
	case "table", "json", "yaml":
		return nil
	}
	return usagef("flag --output is %q: table, json or yaml", string(o))
}

// write prints v as JSON or YAML, or has table print it.
func (o output) write(to io.Writer, v any, table func(io.Writer) error) error {
	switch o {
	case "json":
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	case "yaml":
		data, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = to.Write(data)
		return err
	}
	return table(to)
}

// printTable prints rows of cells in columns, the first of them in capitals.
func printTable(to io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
		fmt.Fprintln(table, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return table.Flush()
}

// printable keeps what came from outside from steering a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// size is a number of bytes for reading.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v := float64(n)
	for len(units) > 1 && v >= 1024 {
		v /= 1024
		units = units[1:]
	}
	if v == float64(int64(v)) {
		return fmt.Sprintf("%.0f %s", v, units[0])
	}
	return fmt.Sprintf("%.1f %s", v, units[0])
}
