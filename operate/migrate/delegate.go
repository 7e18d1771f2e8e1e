package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

const (
	// KeyIDAnnotation is what a StorageVersionMigration was made for. OpenShift's
	// design gave it its name; a migrator does not look at it.
	KeyIDAnnotation = "encryption.apiserver.operator.openshift.io/kms-key-id"
	// RoundAnnotation tells migrations for one key apart.
	RoundAnnotation = "kube-atrest.github.io/round"

	migrationGroup    = "storagemigration.k8s.io"
	migrationResource = "storageversionmigrations"
)

// ErrNotServed is why there is no [Delegate]: the cluster has no
// StorageVersionMigration objects. kube-apiserver serves them with
// --feature-gates=StorageVersionMigrator=true and
// --runtime-config=storagemigration.k8s.io/v1beta1=true.
var ErrNotServed = errors.New("the cluster does not serve " + migrationResource + "." + migrationGroup + ": rewrite the objects without them")

// ErrNotTakenUp is why a migration does not begin: nobody noticed it.
// kube-controller-manager does, with the same feature gate and its garbage
// collector on.
var ErrNotTakenUp = errors.New("no controller took it up: turn on StorageVersionMigrator in kube-controller-manager, or rewrite the objects without it")

// FailedError says that a migrator gave up.
type FailedError struct {
	// Name is that of the StorageVersionMigration, Reason and Message are what
	// it says of its failure.
	Name, Reason, Message string
}

// Error is one line.
func (e *FailedError) Error() string {
	return fmt.Sprintf("storageversionmigration %s failed: %s: %s: rewrite the objects without it, which names the one at fault", e.Name, e.Reason, e.Message)
}

// Delegate has resources rewritten by the cluster's own migrator. It is safe for
// concurrent use. That it succeeded means less than it seems: a migrator takes
// a conflict for an update, and leaves out what was updated since it began.
type Delegate struct {
	cluster *Cluster
	version string
}

// Delegate finds out in which version the cluster serves StorageVersionMigration
// objects. The error wraps [ErrNotServed] if it does not.
func (c *Cluster) Delegate(ctx context.Context) (*Delegate, error) {
	var group metav1.APIGroup
	err := c.patiently(ctx, kubeapi.Request{Method: http.MethodGet, Path: []string{"apis", migrationGroup}}, &group)
	if apierrors.IsNotFound(err) {
		return nil, ErrNotServed
	}
	if err != nil {
		return nil, fmt.Errorf("API group %s: %w", migrationGroup, err)
	}
	for _, version := range group.Versions { // the one that it prefers is the first
		var list metav1.APIResourceList
		of := schema.GroupVersion{Group: migrationGroup, Version: version.Version}
		if err := c.patiently(ctx, kubeapi.Request{Method: http.MethodGet, Path: root(of)}, &list); err != nil {
			return nil, fmt.Errorf("resources of %s: %w", of, err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == migrationResource }) {
			return &Delegate{cluster: c, version: of.Version}, nil
		}
	}
	return nil, ErrNotServed
}

// Wanted is a migration to be done by somebody else.
type Wanted struct {
	Resource schema.GroupVersionResource
	// KeyID and Round are what it is for. A migration that is there for something
	// else is replaced, one that is there for the same is awaited.
	KeyID string
	Round int
	// TakeUp is for how long nobody needs to have taken it up: 2 minutes if it is
	// 0.
	TakeUp time.Duration
	// Progress, if set, is told every 30 seconds for how long the end was waited for,
	// and whether somebody took the migration up.
	Progress func(waited time.Duration, running bool)
}

// Name is that of the StorageVersionMigration for a resource.
func (w Wanted) Name() string {
	return "encryption-migration-" + cmp.Or(w.Resource.Group, "core") + "-" + w.Resource.Resource
}

// migration is a StorageVersionMigration, as far as it is looked at. The zero
// value is one that is not there.
type migration struct {
	Metadata struct {
		UID               types.UID         `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (m migration) is(condition string) (why metav1.Condition, is bool) {
	c := apimeta.FindStatusCondition(m.Status.Conditions, condition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return metav1.Condition{}, false
	}
	return *c, true
}

// firstLook and lookEvery are the shortest and the longest time between two looks at a
// migration: that of a few objects is soon over. waitingEvery is that between two words
// about one that is not.
const (
	firstLook    = 100 * time.Millisecond
	lookEvery    = 2 * time.Second
	waitingEvery = 30 * time.Second
)

// Migrate makes a StorageVersionMigration, unless it is there, and waits for its
// end. One that failed before is made again. The error is a [*FailedError] when
// the migrator gave up, wraps [ErrNotTakenUp] when there is none, is an
// [*OutageError] when the apiserver was away for too long, or that of the
// context, at whose end the migration goes on by itself.
func (d *Delegate) Migrate(ctx context.Context, w Wanted) error {
	began, known := d.cluster.clock.Now(), types.UID("")
	since, told := began, began
	for pause := firstLook; ; pause = min(2*pause, lookEvery) {
		m, err := d.look(ctx, w, known == "")
		if err != nil {
			return fmt.Errorf("storageversionmigration %s: %w", w.Name(), err)
		}
		known = cmp.Or(m.Metadata.UID, known)
		if why, failed := m.is("Failed"); failed {
			return &FailedError{Name: w.Name(), Reason: why.Reason, Message: why.Message}
		}
		if _, succeeded := m.is("Succeeded"); succeeded {
			return nil
		}
		_, running := m.is("Running")
		if running {
			since = d.cluster.clock.Now()
		}
		if d.cluster.clock.Since(since) > cmp.Or(w.TakeUp, 2*time.Minute) {
			return fmt.Errorf("storageversionmigration %s: %w", w.Name(), ErrNotTakenUp)
		}
		if now := d.cluster.clock.Now(); w.Progress != nil && now.Sub(told) >= waitingEvery {
			told = now
			w.Progress(now.Sub(began), running)
		}
		if err := sleep(ctx, d.cluster.clock, pause); err != nil {
			return err
		}
	}
}

// look gives the migration that is there, after making it if there is none. One
// that is for something else has to go first, and also one that has failed
// already when it is met for the first time.
func (d *Delegate) look(ctx context.Context, w Wanted, first bool) (migration, error) {
	var m migration
	err := d.cluster.patiently(ctx, kubeapi.Request{Method: http.MethodGet, Path: d.path(w.Name())}, &m)
	if apierrors.IsNotFound(err) {
		return d.create(ctx, w)
	}
	if err != nil {
		return migration{}, err
	}
	_, failed := m.is("Failed")
	switch {
	case m.Metadata.DeletionTimestamp != nil:
		return migration{}, nil
	case failed && first, !w.describes(m):
		return migration{}, d.remove(ctx, w, m)
	}
	return m, nil
}

func (w Wanted) annotations() map[string]string {
	return map[string]string{KeyIDAnnotation: w.KeyID, RoundAnnotation: strconv.Itoa(w.Round)}
}

func (w Wanted) describes(m migration) bool {
	for name, value := range w.annotations() {
		if m.Metadata.Annotations[name] != value {
			return false
		}
	}
	return true
}

func (d *Delegate) path(name ...string) []string {
	return append(root(schema.GroupVersion{Group: migrationGroup, Version: d.version}), append([]string{migrationResource}, name...)...)
}

func (d *Delegate) create(ctx context.Context, w Wanted) (migration, error) {
	resource := map[string]string{"group": w.Resource.Group, "resource": w.Resource.Resource}
	if d.version == "v1alpha1" { // which had the version, too
		resource["version"] = w.Resource.Version
	}
	body := map[string]any{
		"apiVersion": migrationGroup + "/" + d.version, "kind": "StorageVersionMigration",
		"metadata": map[string]any{"name": w.Name(), "annotations": w.annotations()},
		"spec":     map[string]any{"resource": resource},
	}
	var m migration
	err := d.cluster.patiently(ctx, kubeapi.Request{Method: http.MethodPost, Path: d.path(), Body: body}, &m)
	if apierrors.IsAlreadyExists(err) { // of an attempt that seemed to fail, or of somebody else
		return migration{}, nil
	}
	return m, err
}

// remove deletes exactly what was looked at.
func (d *Delegate) remove(ctx context.Context, w Wanted, m migration) error {
	body := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]string{"uid": string(m.Metadata.UID), "resourceVersion": m.Metadata.ResourceVersion}}
	err := d.cluster.patiently(ctx, kubeapi.Request{Method: http.MethodDelete, Path: d.path(w.Name()), Body: body}, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// patiently is do, for an apiserver that may be away for a while.
func (c *Cluster) patiently(ctx context.Context, r kubeapi.Request, out any) error {
	p := persistence{clock: c.clock, patience: defaultPatience}
	return p.call(ctx, func(ctx context.Context) error { return c.api.Ask(ctx, r, out) })
}
