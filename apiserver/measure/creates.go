package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	kubeproto "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// creator creates Secrets as fast as a client can: bodies made beforehand, in protobuf, on
// a connection for each worker, and of the answers the metadata alone.
type creator struct {
	client *http.Client
	config *rest.Config
	bodies [][]byte
}

func newCreator(p *place, n, atOnce int) (*creator, error) {
	config := rest.CopyConfig(p.config)
	config.NextProtos = []string{"http/1.1"}
	encrypted, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	c := &creator{config: config, client: &http.Client{Transport: &http.Transport{TLSClientConfig: encrypted, MaxIdleConnsPerHost: atOnce, DisableCompression: true,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}}
	serializer := kubeproto.NewSerializer(scheme.Scheme, scheme.Scheme)
	for i := range n {
		var body bytes.Buffer
		if err := serializer.Encode(secret(secretName(i), data(uint64(i))), &body); err != nil {
			return nil, err
		}
		c.bodies = append(c.bodies, body.Bytes())
	}
	return c, nil
}

func (c *creator) close() { c.client.CloseIdleConnections() }

// run creates them all, so many at once.
func (c *creator) run(ctx context.Context, atOnce int) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make(chan error, atOnce)
	for range atOnce {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(c.bodies); i = int(next.Add(1)) - 1 {
				if err := c.create(ctx, c.bodies[i]); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(failed)
	return <-failed
}

func (c *creator) create(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.Host+"/api/v1/namespaces/"+namespace+"/secrets?fieldManager=measure&fieldValidation=Ignore", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.config.BearerToken)
	r.Header.Set("Content-Type", protobuf)
	r.Header.Set("Accept", protobuf+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	answer, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusCreated {
		err = fmt.Errorf("create a Secret: %s: %s", answer.Status, text)
	}
	return err
}
