package main

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// value is what the quickstart stores: easy to recognise, so that not finding it in
	// etcd means something.
	value = "correct-horse-battery-staple"
	// stepTimeout bounds a step. The slowest needs some seconds, and a minute on a
	// machine that is busy.
	stepTimeout = 3 * time.Minute
	// retryInterval is the pause between two tries of what must come true soon.
	retryInterval = 20 * time.Millisecond
	checkPath     = "/healthz/kms-providers"
)

// A step does something to what runs and looks whether what is promised holds.
type step struct {
	doing string // what is being waited for, while it takes long
	fact  string // what held when run returned without an error
	run   func(context.Context, *stage) ([]detail, error)
}

// script is what is shown, in this order; each step begins where the one before it ended.
func script(takenUp bool) []step {
	steps := []step{{"starting", "etcd, the KMS plugin and kube-apiserver run in this process", showStart}}
	if takenUp {
		steps = append(steps, step{"reading", "what an earlier run wrote is readable", showEarlier})
	}
	return append(steps,
		step{"writing a Secret", "a Secret is plain through the API and ciphertext in etcd", showSecret},
		step{"waiting for the new key_id", "the key was rotated, the next write is under the new key_id", showRotation},
		step{"waiting for the new configuration", "the configuration file was edited and took effect at once", showReload},
		step{"waiting for the health check", "the plugin is stopped, reads and writes go on", showOutage},
		step{"waiting for the health check", "the plugin is back, everything is healthy again", showRecovery},
	)
}

func showStart(ctx context.Context, s *stage) ([]detail, error) {
	if err := s.raise(ctx); err != nil {
		return nil, err
	}
	data := s.folder.data
	if !s.folder.kept() {
		data += " (removed at the end, --data keeps one)"
	}
	details := []detail{
		{"apiserver", s.cluster.Config().Host},
		{"kubeconfig", s.cluster.Kubeconfig()},
		{"data, logs", data},
	}
	if fips140.Enforced() {
		details = append(details, detail{"FIPS 140-3", "enforced, but for etcd, which is another process elsewhere; values are written with seeds"})
	}
	return details, nil
}

// showEarlier reads every Secret that is there, from etcd rather than from the
// apiserver's watch cache.
func showEarlier(ctx context.Context, s *stage) ([]detail, error) {
	list, err := s.kube.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	keyIDs := map[string]bool{}
	for _, secret := range list.Items {
		got, err := secrets.read(ctx, s, secret.Name)
		if err != nil {
			return nil, err
		}
		raw, err := secrets.stored(ctx, s, secret.Name)
		if err != nil {
			return nil, err
		}
		found, err := look(raw, []byte(got))
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", secret.Name, err)
		}
		keyIDs[found.keyID] = true
	}
	return []detail{{"etcd", fmt.Sprintf("%d Secrets under %d key_ids", len(list.Items), len(keyIDs))}}, nil
}

func showSecret(ctx context.Context, s *stage) ([]detail, error) {
	if err := makeNamespace(ctx, s); err != nil {
		return nil, err
	}
	found, err := secrets.writeRead(ctx, s, "first", value)
	if err != nil {
		return nil, err
	}
	return []detail{
		{"API", field + ": " + value},
		{"etcd", found.String()},
		{"key_id", hashed.Short(hashed.ID(found.keyID))},
	}, nil
}

func showRotation(ctx context.Context, s *stage) ([]detail, error) {
	before, err := secrets.writeRead(ctx, s, "second", value)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := s.plugin.Rotate(ctx); err != nil {
		return nil, err
	}
	after, writes := before, 0
	err = until(ctx, func(ctx context.Context) (bool, error) {
		writes++
		after, err = secrets.writeRead(ctx, s, "second", fmt.Sprintf("%s-%d", value, writes))
		return after.keyID != before.keyID, err
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	if got, err := secrets.read(ctx, s, "first"); err != nil || got != value {
		return nil, fmt.Errorf("the Secret from before the rotation can no longer be read: %w", err)
	}
	return []detail{
		{"before", hashed.Short(hashed.ID(before.keyID))},
		{"after", hashed.Short(hashed.ID(after.keyID))},
		{"noticed", fmt.Sprintf("after %s; the plugin is asked every %s here, every minute by default", roughly(took), roughly(statusPoll))},
		{"meanwhile", fmt.Sprintf("%d writes, none refused; the older Secret still reads", writes)},
	}, nil
}

func showReload(ctx context.Context, s *stage) ([]detail, error) {
	const name = "third"
	if err := configMaps.write(ctx, s, name, value); err != nil {
		return nil, err
	}
	if raw, err := configMaps.stored(ctx, s, name); err != nil {
		return nil, err
	} else if !strings.Contains(string(raw), value) {
		return nil, errors.New("a ConfigMap is encrypted although the configuration says otherwise")
	}
	start := time.Now()
	if err := s.folder.writeConfig(s.plugin.Endpoint(), cipherFirst); err != nil {
		return nil, err
	}
	var found sealed
	var took time.Duration
	writes := 0
	err := until(ctx, func(ctx context.Context) (bool, error) {
		writes++
		now := fmt.Sprintf("%s-%d", value, writes)
		var err error
		if err = configMaps.write(ctx, s, name, now); err != nil {
			return false, err
		}
		took = time.Since(start)
		raw, err := configMaps.stored(ctx, s, name)
		if err != nil {
			return false, err
		}
		found, err = look(raw, []byte(now))
		return err == nil, nil
	})
	if err != nil {
		return nil, err
	}
	return []detail{
		{"edit", "configmaps: [identity, kms] became [kms, identity]"},
		{"effective", fmt.Sprintf("%d ms after the file was replaced, at write %d", took.Milliseconds(), writes)},
		{"etcd", found.String()},
	}, nil
}

func showOutage(ctx context.Context, s *stage) ([]detail, error) {
	if err := s.plugin.Stop(); err != nil {
		return nil, err
	}
	first, err := s.checkBecomes(ctx, http.StatusInternalServerError, "")
	if err != nil {
		return nil, err
	}
	if got, err := secrets.read(ctx, s, "first"); err != nil || got != value {
		return nil, fmt.Errorf("reading a Secret while the plugin is stopped: %w", err)
	}
	if _, err := secrets.writeRead(ctx, s, "fourth", value); err != nil {
		return nil, fmt.Errorf("writing a Secret while the plugin is stopped: %w", err)
	}
	second, err := s.checkBecomes(ctx, http.StatusInternalServerError, first)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{"/readyz?exclude=kms-providers", "/livez"} {
		if err := s.probe.WaitFor(ctx, path); err != nil {
			return nil, err
		}
	}
	return []detail{
		{"reads", "a Secret from before reads"},
		{"writes", "a new Secret is ciphertext and reads back"},
		{"check", first},
		{"countdown", countdown(first) + ", then " + countdown(second)},
		{"readiness", "/readyz?exclude=kms-providers is ok, and so is /livez"},
	}, nil
}

// countdown is the part of the health check's text that changes from second to second.
func countdown(text string) string {
	if found := regexp.MustCompile(`writes go on for [0-9]+ s`).FindString(text); found != "" {
		return found
	}
	return text
}

func showRecovery(ctx context.Context, s *stage) ([]detail, error) {
	start := time.Now()
	if err := s.plugin.Start(ctx); err != nil {
		return nil, err
	}
	text, err := s.checkBecomes(ctx, http.StatusOK, "")
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	if err := s.probe.WaitFor(ctx, "/readyz"); err != nil {
		return nil, err
	}
	return []detail{
		{"check", fmt.Sprintf("%s, %s after the plugin came back", text, roughly(took))},
		{"readiness", "/readyz is ok"},
	}, nil
}

// checkBecomes waits until the health check answers with status and another text than
// not, and returns it.
func (s *stage) checkBecomes(ctx context.Context, status int, not string) (string, error) {
	var last string
	err := until(ctx, func(ctx context.Context) (bool, error) {
		got, text, err := s.probe.Get(ctx, checkPath)
		last = strings.TrimPrefix(text, "internal server error: ")
		return got == status && last != not, err
	})
	if err != nil {
		return "", fmt.Errorf("%s should answer %d: %w; it says: %s", checkPath, status, err, last)
	}
	return last, nil
}

// until tries condition again until it holds, fails, or ctx ends.
func until(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, condition)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
