package edit

import "slices"

// Entry is what the resources of one entry of a file are written and read with: the
// names of each provider, of which one with several keys has as many. The first one
// writes.
type Entry struct{ Providers [][]string }

// Entries are those of a file, in its order.
func Entries(file []byte) ([]Entry, error) {
	d, err := parse(file)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for i := range d.meant["resources"].([]any) {
		var e Entry
		for j := range d.values(i) {
			e.Providers = append(e.Providers, d.namesAt(place{i, j, -1}))
		}
		all = append(all, e)
	}
	return all, nil
}

// Writes reports whether one of the names is among those of what writes.
func (e Entry) Writes(names ...string) bool {
	return len(e.Providers) > 0 && slices.ContainsFunc(e.Providers[0], func(name string) bool { return slices.Contains(names, name) })
}

// Has reports whether one of the names is among those of the entry.
func (e Entry) Has(names ...string) bool {
	return slices.ContainsFunc(slices.Concat(e.Providers...), func(name string) bool { return slices.Contains(names, name) })
}
