package observe_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/observe"
)

var (
	now    = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	moment = observe.Moment{At: now}
	keyA   = hashed.ID("A")
	keyB   = hashed.ID("B")
)

func TestTheStateOfAnApiserverOfThisProject(t *testing.T) {
	at := now.Add(time.Hour) // by its clock
	data, err := json.Marshal(healthz.Status{Process: "one", ConfigHash: "sha256:1", Reload: &healthz.Reload{LoadedAt: at.Add(-time.Minute), Outcome: "ok"}, Providers: []healthz.Provider{
		{Names: []string{"1_secrets", "1_configmaps"}, Role: "write", WritesFor: []string{"secrets"}, State: "ready", KeyIDHash: keyB, DEKWrites: 3,
			Since: at, WritesUntil: at.Add(time.Minute), LastWrite: at.Add(-time.Second), CachedDEKs: 2},
		{Names: []string{"made a key"}, Role: "write", State: "ready", KeyIDHash: keyA},
		{Names: []string{"wrote"}, Role: "read", State: "ready", KeyIDHash: keyA, DEKWrites: 3},
		{Names: []string{"reads"}, State: "ready"},
		{Names: []string{"sick"}, State: "degraded", Problem: "status_error", Message: "no socket", Since: at.Add(-time.Second)},
	}})
	require.NoError(t, err)
	i, err := observe.Status(data, observe.Moment{At: now, Ahead: time.Hour})
	require.NoError(t, err)
	deks, none := 2, 0
	reads := rotation.Told{Role: rotation.RoleReads, DEKs: &none}
	writes := rotation.Provider{Healthy: true, KeyID: keyB, WroteKeyID: keyB, WroteAt: now,
		Told: rotation.Told{Role: rotation.RoleWrites, WritesFor: []string{"secrets"}, WritesUntil: now.Add(time.Minute), LastWrite: now.Add(-time.Second), DEKs: &deks}}
	require.Equal(t, rotation.Instance{CheckedAt: now, Process: "one", ConfigHash: "sha256:1", ConfigSince: now.Add(-time.Minute), Complete: true, Providers: map[string]rotation.Provider{
		"1_secrets": writes, "1_configmaps": writes, "made a key": {Healthy: true, KeyID: keyA, Told: rotation.Told{Role: rotation.RoleWrites, DEKs: &none}},
		"wrote": {Healthy: true, KeyID: keyA, Told: reads}, "reads": {Healthy: true, Told: reads},
		"sick": {Problem: "status_error", Told: rotation.Told{Role: rotation.RoleReads, Message: "no socket", Since: now.Add(-time.Second), DEKs: &none}}}}, i)
}

// A file that is not in effect is not to be taken for the one that is.
func TestAFileThatIsNotInEffectIsToldOf(t *testing.T) {
	pending := func(r *healthz.Reload) string {
		data, err := json.Marshal(healthz.Status{ConfigHash: "sha256:1", Reload: r})
		require.NoError(t, err)
		i, err := observe.Status(data, moment)
		require.NoError(t, err)
		require.False(t, i.Complete, "it does not say that it has no providers")
		return i.Pending
	}
	require.Empty(t, pending(nil))
	require.Empty(t, pending(&healthz.Reload{Outcome: healthz.Loaded}))
	require.Equal(t, "kind: [", pending(&healthz.Reload{Outcome: healthz.Failed, Error: "kind: ["}))
	require.Equal(t, "it waits for the plugins of sha256:2", pending(&healthz.Reload{Outcome: healthz.Building, BuildingHash: "sha256:2"}))

	const refused = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds{status=\"failure\"} "
	for line, want := range map[string]string{
		refused + "1.79517595e+09": "the file was refused: see the log of the apiserver",
		refused + "1.7951758e+09":  "", // it is not tried again, so it was put right
		refused + "1.7e+09":        "", // it was taken into use since
	} {
		i, err := scrape(t, metrics+line+"\n", "")
		require.NoError(t, err)
		require.Equal(t, want, i.Pending, line)
	}
}

// An apiserver whose encryption has ended serves nothing, whatever its file says.
func TestAnApiserverWhoseEncryptionHasEndedHasAProblem(t *testing.T) {
	data, err := json.Marshal(healthz.Status{ConfigHash: "sha256:1", Ended: true})
	require.NoError(t, err)
	i, err := observe.Status(data, moment)
	require.NoError(t, err)
	require.NotEmpty(t, i.Problem)
}

// A file without reload may have KMS v1 and v2 under one name.
func TestANameThatTwoPluginsHaveIsOfNeither(t *testing.T) {
	told := func(names ...[]string) map[string]rotation.Provider {
		s := healthz.Status{ConfigHash: "sha256:1"}
		for _, n := range names {
			s.Providers = append(s.Providers, healthz.Provider{Names: n, Role: healthz.Reads, State: healthz.Ready, KeyIDHash: keyA})
		}
		data, err := json.Marshal(s)
		require.NoError(t, err)
		i, err := observe.Status(data, moment)
		require.NoError(t, err)
		return i.Providers
	}
	for _, second := range [][]string{{"twice", "alone"}, {"alone", "twice"}} {
		providers := told([]string{"twice"}, second)
		require.Equal(t, rotation.Provider{Problem: `two plugins have the name "twice": give each a name of its own`}, providers["twice"])
		require.True(t, providers["alone"].Healthy)
		require.Equal(t, keyA, providers["alone"].KeyID)
	}
	_, err := rotation.CurrentKeyID(map[string]rotation.Instance{"one": {Providers: told([]string{"twice"}, []string{"twice"})}}, []string{"twice"})
	require.ErrorContains(t, err, "give each a name of its own")
}

const metrics = `# HELP apiserver_encryption_config_controller_last_config_info [ALPHA] Information
# TYPE apiserver_encryption_config_controller_last_config_info gauge
apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="sha256:9",hash="sha256:1"} 1
apiserver_envelope_encryption_key_id_hash_total{key_id_hash="x",provider_name="kms",transformation_type="to_storage"} 7
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{apiserver_id_hash="sha256:9",key_id_hash="KEYA",provider_name="kms"} 1.79517591e+09
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{apiserver_id_hash="sha256:9",key_id_hash="KEYB",provider_name="kms"} 1.79517594e+09
apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{apiserver_id_hash="sha256:9",key_id_hash="KEYA",provider_name="kms",transformation_type="to_storage"} 1.795175920e+09
apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{apiserver_id_hash="sha256:9",key_id_hash="KEYB",provider_name="kms",transformation_type="to_storage"} 1.795175921e+09
apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{apiserver_id_hash="sha256:9",key_id_hash="KEYA",provider_name="kms",transformation_type="from_storage"} 1.79517599e+09
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash="KEYA",provider_name="a \"b\", c}"} 1.795175e+09
apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds{apiserver_id_hash="sha256:9",status="success"} 1.7951750e+09
apiserver_envelope_encryption_dek_source_cache_size{provider_name="kms"} 4
apiserver_envelope_encryption_dek_source_cache_size{provider_name="gone"} 4
apiserver_storage_objects{resource="secrets"} 12
`

func scrape(t *testing.T, text, unready string) (rotation.Instance, error) {
	t.Helper()
	text = strings.NewReplacer("KEYA", keyA, "KEYB", keyB).Replace(text)
	return observe.Metrics(strings.NewReader(text), unready, observe.Moment{At: time.Unix(1795176000, 0).UTC()})
}

func TestTheMetricsOfAnyKubeAPIServer(t *testing.T) {
	i, err := scrape(t, metrics, "")
	require.NoError(t, err)
	deks, wrote := 4, time.Unix(1795175921, 0).UTC()
	require.Equal(t, rotation.Instance{CheckedAt: time.Unix(1795176000, 0).UTC(), Server: "sha256:9", ConfigHash: "sha256:1", ConfigSince: time.Unix(1795175000, 0).UTC(), Providers: map[string]rotation.Provider{
		"kms":       {Healthy: true, KeyID: keyB, WroteKeyID: keyB, WroteAt: wrote, Told: rotation.Told{LastWrite: wrote, DEKs: &deks}},
		`a "b", c}`: {KeyID: keyA, Problem: "its plugin has named no key_id for 3m0s", Silent: true},
	}}, i)
	require.False(t, i.Providers["kms"].Silent)
	require.True(t, i.Providers[`a "b", c}`].Silent)
	i, err = scrape(t, metrics, "plugin is away")
	require.NoError(t, err)
	require.False(t, i.Providers[`a "b", c}`].Silent)
	require.Equal(t, "plugin is away", i.Providers["kms"].Problem)
	require.False(t, i.Providers["kms"].Healthy)
}

// Without a reload no provider left the configuration: a clock was set, or a machine
// suspended.
func TestAPluginIsSilentAfterAReloadAlone(t *testing.T) {
	for _, reload := range []string{`{status="success"} 1.795175e+09`, `{status="success"} 1.7951744e+09`, `{status="success"} 1.7951743e+09`, `{status="failure"} 1.795175e+09`, ""} {
		i, err := scrape(t, strings.Split(metrics, "apiserver_encryption_config_controller_automatic_reload")[0]+"apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds"+reload+"\n", "")
		require.NoError(t, err)
		p := i.Providers[`a "b", c}`]
		require.Equal(t, reload != "" && reload[9] == 's' && !strings.Contains(reload, "1743"), p.Silent, reload)
		require.False(t, p.Healthy)
		require.Equal(t, "its plugin has named no key_id for 3m0s", p.Problem)
	}
}

func TestTheLatestWriteCountsInWhateverOrder(t *testing.T) {
	lines := strings.Split(metrics, "\n")
	lines[6], lines[7] = lines[7], lines[6]
	i, err := scrape(t, strings.Join(lines, "\n"), "")
	require.NoError(t, err)
	require.Equal(t, keyB, i.Providers["kms"].WroteKeyID)
}

func TestWhatIsNotAnApiserverIsRefused(t *testing.T) {
	_, err := scrape(t, "up 1\n", "")
	require.ErrorContains(t, err, "no kube-apiserver with --encryption-provider-config")
	_, err = scrape(t, strings.Repeat("x", 2<<20), "")
	require.ErrorContains(t, err, "metrics of the apiserver: ")
	for want, data := range map[string]string{"not JSON": "<html>", "no configHash": "{}", "at most": strings.Repeat(" ", 5<<20)} {
		_, err := observe.Status([]byte(data), moment)
		require.ErrorContains(t, err, want)
	}
}

func TestClocksAreCompared(t *testing.T) {
	date := func(d time.Duration) http.Header { return http.Header{"Date": {now.Add(d).Format(http.TimeFormat)}} }
	require.Equal(t, observe.Moment{At: now, Ahead: time.Minute}, observe.MomentOf(date(time.Minute), now))
	require.Equal(t, observe.Moment{At: now, Ahead: -time.Minute}, observe.MomentOf(date(-time.Minute), now))
	require.Equal(t, moment, observe.MomentOf(date(time.Second), now))
	require.Equal(t, moment, observe.MomentOf(http.Header{}, now))
}

func FuzzMetrics(f *testing.F) {
	f.Add(metrics)
	f.Add("apiserver_encryption_config_controller_last_config_info{hash=\"\\")
	f.Fuzz(func(t *testing.T, text string) {
		i, err := observe.Metrics(strings.NewReader(text), "", moment)
		require.Equal(t, err == nil, i.ConfigHash != "")
	})
}
