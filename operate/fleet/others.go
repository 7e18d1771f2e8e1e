package fleet

import "context"

// Other is an apiserver that exists and is no member of the fleet, as far as is known.
type Other struct {
	// Name is the host that its Lease names, or the address of an endpoint.
	Name string
	// Why is how it is known, and how sure that is.
	Why string
}

// Others are the apiservers that the cluster knows of and that no member is, in
// the order of their names.
func (f *Fleet) Others(ctx context.Context) ([]Other, error) {
	return nil, nil
}
