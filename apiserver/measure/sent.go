package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

var sentBytes = regexp.MustCompile(`(?m)^etcd_network_client_grpc_sent_bytes_total (\S+)$`)

// sent is how many bytes etcd has sent to all its clients so far.
func (l *lab) sent(ctx context.Context) (float64, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(l.etcdEndpoint(), "unix://"))
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("metrics of etcd: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("metrics of etcd: %w", err)
	}
	found := sentBytes.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("the metrics of etcd do not say what it has sent")
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
