package observe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// The metrics of kube-apiserver that tell of encryption, as of v1.30.
const (
	configInfo = "apiserver_encryption_config_controller_last_config_info"
	statusSeen = "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds"
	keyIDUsed  = "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds"
	reloaded   = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds"
	dekCache   = "apiserver_envelope_encryption_dek_source_cache_size"
)

// maxStatusAge is how long ago a plugin may have named its key_id: three polls
// of a kube-apiserver that finds it healthy.
const maxStatusAge = 3 * time.Minute

// maxClosing is for how long a kube-apiserver may go on to ask the plugins of a
// configuration that it has another one in place of: twice the sum of their timeouts.
const maxClosing = 10 * time.Minute

// Metrics reads those of a kube-apiserver, in the text format. It tells with
// metrics what it was told by its plugins and what it wrote with, but not whether
// it finds them healthy: that is what /readyz/kms-providers says. unready is the
// answer there, empty if that was success.
//
// A kube-apiserver remembers the latest 100 key_ids of all providers, also of
// those that are no longer configured: see [rotation.Provider.Silent]. A provider
// leaves the configuration of a process by a reload alone, so that without one at its time
// the clock of the apiserver was set, or it was suspended.
func Metrics(text io.Reader, unready string, m Moment) (rotation.Instance, error) {
	r := reading{moment: m, told: map[string]time.Time{}, deks: map[string]int{},
		instance: rotation.Instance{CheckedAt: m.At, Providers: map[string]rotation.Provider{}}}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if s, of := parse(lines.Text()); of {
			r.take(s)
		}
	}
	if err := lines.Err(); err != nil {
		return rotation.Instance{}, fmt.Errorf("metrics of the apiserver: %w", err)
	}
	if r.instance.ConfigHash == "" {
		return rotation.Instance{}, errors.New("metrics of the apiserver do not have " + configInfo +
			": it is no kube-apiserver with --encryption-provider-config, or older than v1.30")
	}
	return r.result(unready), nil
}

// reading is what was read of the metrics so far.
type reading struct {
	moment   Moment
	instance rotation.Instance
	told     map[string]time.Time // when its plugin last named a key_id, by provider
	deks     map[string]int
	refused  time.Time // when a content of the file last was
}

func (r *reading) take(s series) {
	i, at, name := &r.instance, r.moment.local(s.time()), s.labels["provider_name"]
	p := i.Providers[name]
	switch {
	case s.metric == configInfo:
		i.ConfigHash, i.Server = s.labels["hash"], s.labels["apiserver_id_hash"]
		return
	case s.metric == reloaded && s.labels["status"] == "success":
		i.ConfigSince = at
		return
	case s.metric == reloaded:
		r.refused = at
		return
	case s.metric == dekCache:
		r.deks[name] = int(s.value)
		return
	case s.metric == statusSeen && !at.Before(r.told[name]):
		p.KeyID, r.told[name] = s.labels["key_id_hash"], at
	case s.metric == keyIDUsed && s.labels["transformation_type"] == "to_storage" && !at.Before(p.WroteAt):
		p.WroteKeyID, p.WroteAt = s.labels["key_id_hash"], at
	}
	i.Providers[name] = p
}

// result is all of it.
func (r *reading) result(unready string) rotation.Instance {
	i, now := r.instance, r.moment.At
	if unready != "" && len(i.Providers) == 0 {
		i.Problem = unready // of a plugin that it was not told anything by
	}
	if r.refused.After(i.ConfigSince) && now.Sub(r.refused) <= maxStatusAge { // it is tried again every minute
		i.Pending = "the file was refused: see the log of the apiserver"
	}
	for name, p := range i.Providers {
		late := unready == "" && now.Sub(r.told[name]) > maxStatusAge
		p.Silent = late && !i.ConfigSince.IsZero() && !i.ConfigSince.Before(r.told[name].Add(-maxClosing))
		p.Healthy, p.Problem = unready == "" && !late, unready
		if late {
			p.Problem = "its plugin has named no key_id for " + maxStatusAge.String()
		}
		p.Told.LastWrite = p.WroteAt
		if n, counted := r.deks[name]; counted {
			p.Told.DEKs = &n
		}
		i.Providers[name] = p
	}
	return i
}

// series is a line of metrics.
type series struct {
	metric string
	labels map[string]string
	value  float64
}

// time is the value as seconds since 1970.
func (s series) time() time.Time {
	seconds, fraction := math.Modf(s.value)
	return time.Unix(int64(seconds), int64(fraction*1e9)).UTC()
}

// parse reads a line if it is about encryption.
func parse(line string) (s series, ok bool) {
	metric, rest, found := strings.Cut(line, "{")
	if !found || !slices.Contains([]string{configInfo, statusSeen, keyIDUsed, reloaded, dekCache}, metric) {
		return series{}, false
	}
	s = series{metric: metric, labels: map[string]string{}}
	for {
		name, after, found := strings.Cut(rest, "=")
		if !found {
			return series{}, false
		}
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return series{}, false
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return series{}, false
		}
		s.labels[strings.TrimSpace(name)] = value
		rest = after[len(quoted):]
		if strings.HasPrefix(rest, "}") {
			break
		}
		rest = strings.TrimPrefix(rest, ",")
	}
	fields := strings.Fields(rest[1:])
	if len(fields) == 0 {
		return series{}, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	s.value = value
	return s, err == nil && value >= 0 && value < 1e11
}
