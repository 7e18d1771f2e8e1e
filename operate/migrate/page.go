package migrate

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// Object names an object. Namespace is empty for one of the whole cluster.
type Object struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// What is asked for in place of whole objects. Protobuf takes an apiserver less time.
const (
	metadataList = "application/vnd.kubernetes.protobuf" + asList + ",application/json" + asList + ",application/json"
	metadata     = "application/vnd.kubernetes.protobuf" + asOne + ",application/json" + asOne + ",application/json"
	asList       = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asOne        = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// version is an object as it was at a moment.
type version struct {
	Object
	resourceVersion string
}

// meta is all of an object's metadata that is looked at.
type meta struct {
	Metadata struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

func (m meta) version() version {
	return version{Object{m.Metadata.Namespace, m.Metadata.Name}, m.Metadata.ResourceVersion}
}

// Unmarshal reads protobuf.
func (m *meta) Unmarshal(data []byte) error {
	var all metav1.PartialObjectMetadata
	if err := all.Unmarshal(data); err != nil {
		return err
	}
	m.of(&all)
	return nil
}

func (m *meta) of(o *metav1.PartialObjectMetadata) {
	m.Metadata.Namespace, m.Metadata.Name, m.Metadata.ResourceVersion = o.Namespace, o.Name, o.ResourceVersion
}

type listing struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []meta          `json:"items"`
}

// Unmarshal reads protobuf.
func (l *listing) Unmarshal(data []byte) error {
	var all metav1.PartialObjectMetadataList
	if err := all.Unmarshal(data); err != nil {
		return err
	}
	l.Metadata, l.Items = all.ListMeta, make([]meta, len(all.Items))
	for i := range all.Items {
		l.Items[i].of(&all.Items[i])
	}
	return nil
}

var _, _ kubeapi.Message = (*meta)(nil), (*listing)(nil)

// page is the part of a list that comes next.
type page struct {
	objects []version
	// next is the token for the page after it, empty for the last.
	next string
	// more is how many objects come after it, 0 if that is not known.
	more int64
}

// nextPage lists what comes after the checkpoint. When its token has expired it
// goes on with the one that the apiserver gives in return, which lists things as
// they are now. An apiserver that gives none is asked from the beginning, and
// what was done before is left out.
func (r *run) nextPage(ctx context.Context) (page, error) {
	var list listing
	var err error
	if found := r.ahead.take(r.at.Continue); found != nil {
		list = *found
	} else {
		err = r.list(ctx, r.at.Continue, &list)
	}
	if r.at.Continue != "" && r.unusable(ctx, err) {
		if token := renewed(err); token != "" {
			err = r.list(ctx, token, &list)
		}
		if r.unusable(ctx, err) {
			if !apierrors.IsResourceExpired(err) { // what was done may not be so in this etcd
				r.at.Last = Object{}
			}
			r.at.anew()
			err = r.list(ctx, "", &list)
		}
	}
	if err != nil {
		return page{}, err
	}
	r.paged = true
	p := page{next: list.Metadata.Continue}
	if list.Metadata.RemainingItemCount != nil {
		p.more = *list.Metadata.RemainingItemCount
	}
	for _, item := range list.Items {
		v := item.version()
		if v.Name == "" || v.resourceVersion == "" {
			return page{}, errNoMetadata
		}
		p.objects = append(p.objects, v)
	}
	return p, nil
}

var errNoMetadata = errors.New("an object without name or resourceVersion: this is no Kubernetes API")

func (r *run) list(ctx context.Context, token string, into *listing) error {
	return r.persist.call(ctx, func(ctx context.Context) error { return r.listOnce(ctx, token, into) })
}

func (r *run) listOnce(ctx context.Context, token string, into *listing) error {
	*into = listing{}
	query := url.Values{"limit": {strconv.FormatInt(r.options.PageSize, 10)}}
	if token != "" {
		query.Set("continue", token)
	}
	return r.cluster.api.Ask(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r.resource, nil), Query: query, Accept: metadataList}, into)
}

// ahead is a page that is listed while the one before it is rewritten. It is for one
// goroutine.
type ahead struct {
	token string
	found chan *listing // nil if it could not be listed
}

// lookAhead lists what comes after a page, if anything does. What goes wrong is nobody's
// matter: the page is listed again when it is its turn.
func (r *run) lookAhead(ctx context.Context, token string) {
	r.ahead = ahead{}
	if token == "" {
		return
	}
	found := make(chan *listing, 1)
	r.ahead = ahead{token, found}
	go func() {
		var list listing
		if r.listOnce(ctx, token, &list) != nil {
			found <- nil
			return
		}
		found <- &list
	}()
}

// take gives the page of a token, and nil if it was not listed ahead.
func (a *ahead) take(token string) *listing {
	if a.found == nil || a.token != token {
		return nil
	}
	found := a.found
	*a = ahead{}
	return <-found
}

// unusable tells that a token cannot be continued with: it has expired, or is
// from another time of the cluster. An older apiserver fails at one of a revision that
// etcd does not have, since it was restored: at the first page of a run that may be why.
func (r *run) unusable(ctx context.Context, err error) bool {
	k := kindOf(ctx, err)
	return k == expired || k == broken && !r.paged || err != nil && apierrors.IsBadRequest(err)
}

// renewed is the token that an apiserver gives for one that expired.
func renewed(err error) string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return ""
	}
	return answer.Status().ListMeta.Continue
}

// undone is what of a page was not done before a list began anew. Objects are
// listed in the order of their keys in etcd; where they are not, nothing is left
// out.
func (c *Checkpoint) undone(objects []version) []version {
	last := c.Last.String()
	for _, o := range objects {
		if c.Anew && o.String() <= last {
			continue
		}
		c.Unordered = c.Unordered || o.String() <= last && last != ""
		last = o.String()
	}
	if !c.Anew {
		return objects
	}
	return slices.DeleteFunc(objects, func(o version) bool { return o.String() <= c.Last.String() })
}
