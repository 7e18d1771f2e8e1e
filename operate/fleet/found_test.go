package fleet_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/fleet"
)

func TestAnApiserverAtAnAddressOfItsOwn(t *testing.T) {
	user := &rest.Config{Host: "https://balancer", BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{ServerName: "kubernetes"}}
	for address, want := range map[string]string{
		"https://10.0.0.1:6443": "10.0.0.1:6443", "https://cp-1.example.com/": "cp-1.example.com:443", "https://[FD00::1]:6443": "[fd00::1]:6443",
		"http://127.0.0.1:8080": "127.0.0.1:8080", "http://localhost": "localhost:80",
	} {
		m, err := fleet.At(address, user)
		require.NoError(t, err, address)
		require.Equal(t, want, m.Name)
		require.Contains(t, m.Config.Host, "://"+want)
		require.Equal(t, "token", m.Config.BearerToken)
		require.Equal(t, "kubernetes", m.Config.ServerName)
	}
	require.Equal(t, "https://balancer", user.Host, "which stays as it is")
	for _, address := range []string{"https://", "10.0.0.1:6443", "https://user:pw@10.0.0.1", "https://10.0.0.1/path", "https://10.0.0.1?a=b", "ftp://10.0.0.1", "https://10.0.0.1#a"} {
		_, err := fleet.At(address, user)
		require.ErrorContains(t, err, "write https://HOST:PORT, and no more", address)
	}
	_, err := fleet.At("http://10.0.0.1:8080", user)
	require.ErrorContains(t, err, "write https, as credentials go there")
}

func TestApiserversAreFoundByTheirEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		slices, legacy string
		want           []string
		problem        string
	}{
		"slices": {slices: `{"items":[{"endpoints":[{"addresses":["10.0.0.2"]},{"addresses":["10.0.0.1"]}],"ports":[{"name":"https","port":6443}]},
			{"endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"https","port":6443},{"name":"more","port":1}]}]}`, want: []string{"10.0.0.1:6443", "10.0.0.2:6443"}},
		"one port without a name": {slices: `{"items":[{"endpoints":[{"addresses":["fd00::1"]}],"ports":[{"port":6443}]}]}`, want: []string{"[fd00::1]:6443"}},
		"endpoints": {legacy: `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"notReadyAddresses":[{"ip":"10.0.0.3"}],"ports":[{"name":"https","port":443}]}]}`,
			want: []string{"10.0.0.1:443", "10.0.0.3:443"}},
		"no port": {slices: `{"items":[{"endpoints":[{"addresses":["10.0.0.1"]}]}]}`, problem: "which port the apiserver at 10.0.0.1 has is not known"},
		"none":    {slices: `{"items":[]}`, problem: "which apiservers there are is not known: there are no endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				said := map[string]string{"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices": c.slices, "/api/v1/namespaces/default/endpoints/kubernetes": c.legacy}[r.URL.Path]
				if said == "" {
					w.WriteHeader(http.StatusNotFound)
					_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"})
					return
				}
				_, _ = w.Write([]byte(said))
			}))
			defer s.Close()
			found, err := fleet.Found(t.Context(), &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			var names []string
			for _, m := range found {
				names = append(names, m.Name)
			}
			require.NoError(t, err)
			require.Equal(t, c.want, names)
		})
	}
}

// A certificate is for names. That of another is refused, with the flag that says which to
// expect.
func TestACertificateForAnotherNameNamesTheFlag(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	problem := func(name string) string {
		user := &rest.Config{Timeout: 5 * time.Second, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: name}}
		m, err := fleet.At("https://"+s.Listener.Addr().String(), user)
		require.NoError(t, err)
		f, err := fleet.New([]fleet.Member{m}, clock.RealClock{})
		require.NoError(t, err)
		return f.Observe(t.Context())[m.Name].Problem
	}
	require.Contains(t, problem("kubernetes.default"), "certificate is valid for example.com, *.example.com, not kubernetes.default: give an address that its certificate is for, or say a name that it is for by --tls-server-name")
	require.NotContains(t, problem("example.com"), "certificate")
}
