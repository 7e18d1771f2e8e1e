package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Client asks one apiserver. It is safe for concurrent use.
type Client struct {
	Base *url.URL
	// Timeout bounds a [Request] and its answer.
	Timeout time.Duration

	http    *http.Client
	objects *rest.RESTClient
}

// New is a client of the apiserver that c leads to, with its credentials. The timeout is
// that of c, and atMost if c has none or a longer one. The limits on requests in c do
// not apply.
func New(c *rest.Config, atMost time.Duration) (*Client, error) {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	c.NegotiatedSerializer, c.QPS, c.WarningHandler = serializer.NewCodecFactory(statuses()).WithoutConversion(), -1, rest.NoWarnings{}
	client := &Client{Timeout: atMost}
	if c.Timeout > 0 {
		client.Timeout = min(c.Timeout, atMost)
	}
	c.Timeout = 0 // it would bound what Open opens, too, which the caller does
	var err error
	if client.http, err = rest.HTTPClientFor(c); err != nil {
		return nil, err
	}
	if client.Base, _, err = rest.DefaultServerUrlFor(c); err != nil {
		return nil, err
	}
	client.objects, err = rest.UnversionedRESTClientForConfigAndClient(c, client.http)
	return client, err
}

// statuses knows nothing but how an apiserver refuses.
func statuses() *runtime.Scheme {
	known := runtime.NewScheme()
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"})
	return known
}

// Request is a question about objects.
type Request struct {
	Method string
	Path   []string
	Query  url.Values
	// Accept is what the answer is to be, whole objects in JSON if it is empty.
	Accept string
	// Body is sent as JSON, of the media type Patch if that is set.
	Body  any
	Patch types.PatchType
	// Again says, of a patch that changes nothing, that the object is to be stored again
	// as it is. See [StoreAgain].
	Again bool
	// Warned is given each warning of the answer, if it is set.
	Warned func(text string)
}

// StoreAgain is the header of such a patch. An apiserver with this library does that and no
// more for Secrets and ConfigMaps, others do not know it.
const StoreAgain = "Atrest-Store-Again"

// Ask sends a request and decodes the answer into out, unless that is nil: JSON, or
// protobuf if Accept has that and out is a [Message]. An error that
// is an [k8s.io/apimachinery/pkg/api/errors.APIStatus] is the apiserver's; after any
// other it is not known whether the request had an effect.
func (c *Client) Ask(ctx context.Context, r Request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	q := c.objects.Verb(r.Method).AbsPath(r.Path...).MaxRetries(0).SetHeader("Accept", orJSON(r.Accept))
	for name, values := range r.Query {
		for _, value := range values {
			q.Param(name, value)
		}
	}
	if r.Body != nil {
		data, err := json.Marshal(r.Body)
		if err != nil {
			return err
		}
		q.Body(data).SetHeader("Content-Type", orJSON(string(r.Patch)))
	}
	if r.Again {
		q.SetHeader(StoreAgain, "true")
	}
	if r.Warned != nil {
		q.WarningHandler(warned(r.Warned))
	}
	result := q.Do(klog.NewContext(ctx, klog.Logger{})) // what goes wrong is in the error
	err := result.Error()
	var long *tooLong
	switch {
	case errors.As(err, &long): // client-go says: please retry
		return fmt.Errorf("answer to %s %s: %w: ask for smaller pages", r.Method, q.URL().Path, long)
	case err != nil, out == nil:
		return err
	}
	var mediaType string
	data, err := result.ContentType(&mediaType).Raw()
	if err != nil {
		return err
	}
	if err := decode(data, mediaType, out); err != nil {
		return fmt.Errorf("answer to %s %s is not what an apiserver says: %w", r.Method, q.URL().Path, err)
	}
	return nil
}

// warned is given the warnings of an answer.
type warned func(text string)

// HandleWarningHeader is called for each.
func (w warned) HandleWarningHeader(_ int, _, text string) { w(text) }

// Message is what an answer in protobuf is decoded into.
type Message interface{ Unmarshal(data []byte) error }

// decode reads protobuf, in the envelope in which Kubernetes sends it, or JSON.
func decode(data []byte, mediaType string, out any) error {
	message, ok := out.(Message)
	if inside, enveloped := bytes.CutPrefix(data, []byte("k8s\x00")); ok && enveloped && strings.HasPrefix(mediaType, runtime.ContentTypeProtobuf) {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(inside); err != nil {
			return err
		}
		return message.Unmarshal(envelope.Raw)
	}
	return json.Unmarshal(data, out)
}

func orJSON(mediaType string) string {
	if mediaType == "" {
		return runtime.ContentTypeJSON
	}
	return mediaType
}

// Open asks for what is no object. The caller closes the body of the answer, and
// bounds the time that it takes with ctx.
func (c *Client) Open(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	return c.http.Do(req)
}
