package config

import (
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/metrics"
)

// observer turns what happens at one plugin into metrics and log lines.
type observer struct {
	kms    atomic.Pointer[metrics.KMS]
	logger klog.Logger
}

var _ envelope.Observer = (*observer)(nil)

func newObserver(name string, o BuildOptions) *observer {
	obs := &observer{logger: o.Logger}
	obs.kms.Store(&metrics.KMS{Provider: name, APIServerID: o.APIServerID})
	return obs
}

// rename changes the name under which the plugin is recorded.
func (o *observer) rename(name string) {
	old := *o.kms.Load()
	if old.Provider == name {
		return
	}
	old.Forget()
	o.kms.Store(&metrics.KMS{Provider: name, APIServerID: old.APIServerID})
}

func (o *observer) called(method string, took time.Duration, err error) {
	o.kms.Load().Call(method, took, err)
}

func (o *observer) StatusSeen(keyID string) { o.kms.Load().StatusKeyID(keyID) }

func (o *observer) KeyIDRefused(err error) { o.kms.Load().KeyIDRefused(err) }

func (o *observer) DEKMade(reason string, took time.Duration, err error) {
	kms := o.kms.Load()
	kms.DEKMade(reason, took, err)
	if err == nil {
		o.logger.V(1).Info("Made a data encryption key", "provider", kms.Provider, "reason", reason)
	}
}

func (o *observer) DEKUnwrapped(size int) {
	kms := o.kms.Load()
	kms.CacheMiss()
	kms.CacheSize(size)
}

func (o *observer) DEKsDropped(size int) { o.kms.Load().CacheSize(size) }

func (o *observer) Changed(h envelope.Health) {
	name := o.kms.Load().Provider
	if h.Problem == "" {
		o.logger.Info("KMS plugin is healthy", "provider", name, "keyIDHash", h.KeyIDHash)
		return
	}
	if !h.Writes {
		o.logger.Error(h.Err, "KMS plugin is not healthy", "provider", name, "problem", h.Problem, "since", h.Since, "role", "read")
		return
	}
	o.logger.Error(h.Err, "KMS plugin is not healthy", "provider", name, "problem", h.Problem, "since", h.Since, "writesUntil", h.WritesUntil)
}
