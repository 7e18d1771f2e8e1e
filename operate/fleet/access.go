package fleet

import "context"

// Need is something that a user has to be allowed.
type Need struct {
	Verb string
	// Group, Resource and Namespace are empty for a Path. Namespace is also empty
	// for all of them, and for what is in none.
	Group, Resource, Namespace string
	// Path is a nonResourceURL.
	Path string
}

// Denied is what of the needs the user may not do, a line for each with the remedy.
func (f *Fleet) Denied(ctx context.Context, needs []Need) ([]string, error) {
	return nil, nil
}
