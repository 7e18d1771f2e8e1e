package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Group is that of the labels, annotations and data keys of a record's Secret, and
// Finalizer what keeps it from being deleted before its time.
const (
	Group     = "encryption.kube-atrest.io"
	Finalizer = Group + "/deletion-protection"
	// Label has the keyID, so that all records are found by it.
	Label = Group + "/key"
)

// MaxSize is the most bytes of data that a record may have: what a Secret can hold.
const MaxSize = 1 << 20

// The data keys: the key, the four parts of a plugin, and what is known of the way.
const (
	dataPrefix   = Group + "-"
	dataKey      = dataPrefix + "key"
	dataConfig   = dataPrefix + "kms-encryption-config"
	dataSettings = dataPrefix + "kms-plugin-config"
	dataFacts    = dataPrefix + "record"
	// Those of parts are named as in a bundle, without the keyID.
	dataPart = dataPrefix + "kms-plugin-"
)

// SecretName is the name of the Secret of a key.
func SecretName(id bundle.KeyID) string { return "encryption-key-" + id.String() }

// facts are what a record has beside keys and credentials.
type facts struct {
	Version     int             `json:"version"`
	ID          bundle.KeyID    `json:"id"`
	Mode        Mode            `json:"mode"`
	From        bundle.KeyID    `json:"from,omitempty"`
	Reason      Reason          `json:"reason"`
	External    string          `json:"external,omitempty"`
	CreatedAt   time.Time       `json:"createdAt"`
	Timeout     string          `json:"timeout,omitempty"`
	KeyIDHash   string          `json:"keyIDHash,omitempty"`
	Resources   []string        `json:"resources"`
	Strict      bool            `json:"strict,omitempty"`
	State       json.RawMessage `json:"state,omitempty"`
	Change      *Change         `json:"change,omitempty"`
	Round       int             `json:"round,omitempty"`
	SettledAt   time.Time       `json:"settledAt,omitzero"`
	AbandonedAt time.Time       `json:"abandonedAt,omitzero"`
	Migrated    string          `json:"migrated,omitempty"`
	Left        *Left           `json:"left,omitempty"`
}

const factsVersion = 1

// Encode is the Secret of a record. Its annotations are for people and for who lists
// Secrets; nothing reads them here. The error is that of a record that is none, or too large.
func Encode(r Record, namespace string) (*corev1.Secret, error) {
	if err := r.whole(); err != nil {
		return nil, err
	}
	f := facts{factsVersion, r.ID, r.Mode, r.From, r.Reason, r.External, r.CreatedAt, "", r.KeyIDHash, r.Resources, r.Strict, nil, r.Change, r.Round, r.SettledAt, r.AbandonedAt, r.Migrated, r.Left}
	data := map[string][]byte{dataKey: r.Key}
	if r.Key == nil {
		data[dataKey] = make([]byte, 16) // none
	}
	if p := r.Plugin; p != nil {
		f.Timeout = p.timeout().String()
		data[dataConfig], data[dataSettings] = r.wrapped(), p.Settings
		for part, content := range p.Parts {
			data[partName(part)] = content
		}
	}
	var err error
	if r.State != nil {
		if f.State, err = r.State.Encode(); err != nil {
			return nil, fmt.Errorf("key %s: %w", r.ID, err)
		}
	}
	if data[dataFacts], err = json.Marshal(f); err != nil {
		return nil, fmt.Errorf("key %s: %w", r.ID, err)
	}
	s := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{}}
	s.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: SecretName(r.ID), Labels: map[string]string{Label: r.ID.String()}, Annotations: r.annotations(), Finalizers: []string{Finalizer}}
	size := 0
	for name, content := range data {
		s.Data[name] = bytes.Clone(content)
		size += len(name) + len(content)
	}
	if size > MaxSize {
		return nil, fmt.Errorf("key %s has %d bytes, and a Secret holds %d: name smaller files for its plugin", r.ID, size, MaxSize)
	}
	return s, nil
}

func (r *Record) annotations() map[string]string {
	all := map[string]string{"kubernetes.io/description": "Without this Secret what is stored in etcd may never be read again. Do not change or delete it, and take off no finalizer."}
	add := func(name, value string) {
		if value != "" {
			all[Group+"/"+name] = value
		}
	}
	add("mode", string(r.Mode))
	add("internal-reason", string(r.Reason))
	add("external-reason", r.External)
	add("migrated-remote-key-id", r.Migrated)
	if s := r.State; s != nil && s.OnePlugin != nil {
		add("target-remote-key-id", s.OnePlugin.Target)
	}
	if r.settled() {
		add("migrated-timestamp", r.SettledAt.UTC().Format(time.RFC3339))
		add("migrated-resources", strings.Join(r.Resources, ","))
	}
	return all
}

// wrapped is the provider of a plugin, in the form of an EncryptionConfiguration.
func (r *Record) wrapped() []byte {
	text, err := json.Marshal(fileForm{"apiserver.config.k8s.io/v1", "EncryptionConfiguration",
		[]resourceForm{{[]string{"secrets"}, []providerForm{{KMS: r.kms(r.ID.String())}}}}})
	if err != nil {
		panic(err) // of strings
	}
	return text
}

func partName(p bundle.Part) string {
	name := p.FileName(1)
	return dataPrefix + strings.TrimSuffix(name, "-1")
}

// Decode is the record in a Secret that [Encode] made, and refuses any other one whole:
// what cannot be read is not taken for less than it was. The Secret is not kept. No error
// has anything of its content.
func Decode(s *corev1.Secret) (Record, error) {
	r, err := decode(s)
	if err != nil {
		return Record{}, fmt.Errorf("secret %.100q is no record of a key: %w", s.Name, err)
	}
	return r, nil
}

func decode(s *corev1.Secret) (Record, error) {
	size := 0
	for name, content := range s.Data {
		size += len(name) + len(content)
	}
	if size > MaxSize || len(s.StringData) > 0 {
		return Record{}, fmt.Errorf("it has %d bytes of data, at most %d are read, and no stringData", size, MaxSize)
	}
	f, err := decodeFacts(s.Data[dataFacts])
	if err != nil {
		return Record{}, err
	}
	r := Record{As: "key", ID: f.ID, Mode: f.Mode, From: f.From, Reason: f.Reason, CreatedAt: f.CreatedAt, External: f.External, KeyIDHash: f.KeyIDHash, Resources: f.Resources,
		Strict: f.Strict, Change: f.Change, Round: f.Round, SettledAt: f.SettledAt, AbandonedAt: f.AbandonedAt, Migrated: f.Migrated, Left: f.Left}
	if s.Name != SecretName(r.ID) {
		return Record{}, fmt.Errorf("it says that it is key %s, whose name is %s", r.ID, SecretName(r.ID))
	}
	if f.State != nil {
		state, err := rotation.Decode(f.State)
		if err != nil {
			return Record{}, err
		}
		r.State = &state
	}
	if err := r.decodeKey(s.Data, f.Timeout); err != nil {
		return Record{}, err
	}
	return r, r.whole()
}

func decodeFacts(data []byte) (f facts, err error) {
	if data == nil {
		return f, fmt.Errorf("%s is missing", dataFacts)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return f, fmt.Errorf("%s cannot be decoded", dataFacts)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("%s has more than one value", dataFacts)
	}
	if f.Version != factsVersion {
		return f, fmt.Errorf("%s has version %d, this program reads %d: use the program that wrote it", dataFacts, f.Version, factsVersion)
	}
	return f, nil
}

// decodeKey reads what is key material or a credential, and refuses what is not of it.
func (r *Record) decodeKey(data map[string][]byte, timeout string) error {
	rest := maps.Clone(data)
	delete(rest, dataFacts)
	key := rest[dataKey]
	delete(rest, dataKey)
	switch {
	case r.Mode.local():
		r.Key = bytes.Clone(key)
	case !bytes.Equal(key, make([]byte, 16)):
		return fmt.Errorf("%s has a key, and mode %.40q none", dataKey, r.Mode)
	}
	if r.Mode == KMS {
		d, err := time.ParseDuration(timeout)
		if err != nil || d <= 0 || d.String() != timeout {
			return errors.New("its timeout is none")
		}
		r.Plugin = &Plugin{As: "plugin", Settings: bytes.Clone(rest[dataSettings]), Parts: map[bundle.Part][]byte{}, Timeout: d}
		if !bytes.Equal(rest[dataConfig], r.wrapped()) {
			return fmt.Errorf("%s is not the provider of key %s", dataConfig, r.ID)
		}
		delete(rest, dataSettings)
		delete(rest, dataConfig)
	}
	for name, content := range rest {
		part, _, err := bundle.ParsePart(strings.TrimPrefix(name, dataPrefix) + "-1")
		if !strings.HasPrefix(name, dataPart) || err != nil || r.Plugin == nil {
			return fmt.Errorf("data key %.260q is none of a key of mode %.40q", name, r.Mode)
		}
		r.Plugin.Parts[part] = bytes.Clone(content)
	}
	return nil
}
