package stored

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the KMS v2 stored object, in bytes (KEP-3299). They hold for what
// is written and for what is read.
const (
	MaxKeyID              = 1 << 10
	MaxEncryptedDEKSource = 1 << 10
	// MaxAnnotations bounds the sum of all keys and values.
	MaxAnnotations = 32 << 10
)

// SourceType says what the plaintext of an encrypted DEK source is.
type SourceType int32

const (
	// SourceDEK is an AES-GCM key used as it is; the nonce is the first 12
	// bytes of the data.
	SourceDEK SourceType = 0
	// SourceSeed is an HKDF-SHA256 seed; the first 32 bytes of the data are
	// the info from which the object's own key is expanded (RFC 5869, 2.3).
	SourceSeed SourceType = 1
)

// The fields of the stored object and of an annotation (a protobuf map entry).
const (
	fieldData        protowire.Number = 1
	fieldKeyID       protowire.Number = 2
	fieldDEKSource   protowire.Number = 3
	fieldAnnotations protowire.Number = 4
	fieldSourceType  protowire.Number = 5

	fieldMapKey   protowire.Number = 1
	fieldMapValue protowire.Number = 2
)

// tagData is the first byte of every object that Kubernetes writes.
const tagData = byte(fieldData)<<3 | byte(protowire.BytesType)

// Annotation is one entry that a KMS plugin gave along with an encrypted DEK.
type Annotation struct {
	Key   string
	Value []byte
}

// DEKSource is all of a stored object but its data: what has to be shown to
// the KMS plugin to have the DEK (or seed) back. Nothing in it is secret.
type DEKSource struct {
	Type         SourceType
	KeyID        string
	EncryptedDEK []byte
	// Annotations are sorted by key, and no key occurs twice.
	Annotations []Annotation
}

// Object is the stored form of one KMS v2 value, after its prefix.
type Object struct {
	Data   []byte
	Source DEKSource
}

// NewDEKSource checks a plugin's answer against the limits of the stored form
// and keeps copies of it. The error names the limit that was broken.
func NewDEKSource(t SourceType, keyID string, encryptedDEK []byte, annotations map[string][]byte) (DEKSource, error) {
	s := DEKSource{Type: t, KeyID: keyID, EncryptedDEK: slices.Clone(encryptedDEK)}
	for k, v := range annotations {
		s.Annotations = append(s.Annotations, Annotation{Key: k, Value: slices.Clone(v)})
	}
	slices.SortFunc(s.Annotations, byKey)
	return s, s.validate()
}

func byKey(a, b Annotation) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) }

func (s *DEKSource) validate() error {
	if s.Type != SourceDEK && s.Type != SourceSeed {
		return fmt.Errorf("unknown encryptedDEKSourceType: %d", s.Type)
	}
	if err := ValidateKeyID(s.KeyID); err != nil {
		return err
	}
	if !utf8.ValidString(s.KeyID) {
		return errors.New("key_id is not valid UTF-8")
	}
	switch n := len(s.EncryptedDEK); {
	case n == 0:
		return errors.New("encrypted DEK source is empty")
	case n > MaxEncryptedDEKSource:
		return fmt.Errorf("encrypted DEK source is %d bytes, more than %d", n, MaxEncryptedDEKSource)
	}
	return s.validateAnnotations()
}

func (s *DEKSource) validateAnnotations() error {
	total := 0
	for _, a := range s.Annotations {
		total += len(a.Key) + len(a.Value)
	}
	if total > MaxAnnotations {
		return fmt.Errorf("annotations are %d bytes, more than %d", total, MaxAnnotations)
	}
	for _, a := range s.Annotations {
		if errs := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), a.Key); len(errs) > 0 {
			return fmt.Errorf("annotation key %.300q is not a fully qualified domain name", a.Key)
		}
	}
	return nil
}

// ErrKeyIDEmpty and ErrKeyIDTooLong are what can be wrong with a key_id.
var (
	ErrKeyIDEmpty   = errors.New("key_id is empty")
	ErrKeyIDTooLong = fmt.Errorf("key_id is longer than %d bytes", MaxKeyID)
)

// ValidateKeyID reports whether a key_id can be stored: 1 to [MaxKeyID] bytes.
func ValidateKeyID(keyID string) error {
	switch n := len(keyID); {
	case n == 0:
		return ErrKeyIDEmpty
	case n > MaxKeyID:
		return fmt.Errorf("%w: %d bytes", ErrKeyIDTooLong, n)
	}
	return nil
}

// Annotation map form, as the KMS API has it; nil when there are none.
func (s *DEKSource) AnnotationMap() map[string][]byte {
	if len(s.Annotations) == 0 {
		return nil
	}
	m := make(map[string][]byte, len(s.Annotations))
	for _, a := range s.Annotations {
		m[a.Key] = a.Value
	}
	return m
}

// Tail is the encoding of everything after an object's data, the fields in
// number order and the annotations by key. It is the same for every object
// sealed under one DEK, and different for different sources.
func (s *DEKSource) Tail() []byte {
	var b []byte
	b = appendBytes(b, fieldKeyID, []byte(s.KeyID))
	b = appendBytes(b, fieldDEKSource, s.EncryptedDEK)
	for _, a := range s.Annotations {
		var entry []byte
		entry = appendBytes(entry, fieldMapKey, []byte(a.Key))
		entry = appendBytes(entry, fieldMapValue, a.Value)
		b = appendBytes(b, fieldAnnotations, entry)
	}
	if s.Type != SourceDEK {
		b = protowire.AppendTag(b, fieldSourceType, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(s.Type))
	}
	return slices.Clip(b)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// SizeData is how many bytes [AppendDataHead] appends for n bytes of data,
// and the data itself.
func SizeData(n int) int { return 1 + protowire.SizeBytes(n) }

// AppendDataHead begins an object: n bytes of data, then a tail, must follow.
func AppendDataHead(b []byte, n int) []byte {
	return protowire.AppendVarint(append(b, tagData), uint64(n))
}

// Split parts an object into its data and the encoded rest without looking
// into the rest, which is enough to find a DEK that is known already. Both
// alias payload. ok is false when the data is not the first field; [Parse]
// reads such an object.
func Split(payload []byte) (data, tail []byte, ok bool) {
	if len(payload) == 0 || payload[0] != tagData {
		return nil, nil, false
	}
	data, n := protowire.ConsumeBytes(payload[1:])
	if n < 0 {
		return nil, nil, false
	}
	return data, payload[1+n:], true
}

// Parse reads a whole object and checks it against the limits. Fields may come
// in any order, the last of a repeated one wins, and unknown ones are passed
// over, as every protobuf reader does. Data aliases payload; the source does not.
func Parse(payload []byte) (Object, error) {
	o, err := parse(payload)
	if err == nil && len(o.Data) == 0 {
		err = errors.New("encrypted data is empty")
	}
	if err != nil {
		return Object{}, err
	}
	return o, o.Source.validate()
}

// ParseSource reads what [DEKSource.Tail] encodes, in any order of its fields.
func ParseSource(tail []byte) (DEKSource, error) {
	o, err := parse(tail)
	if err != nil {
		return DEKSource{}, err
	}
	return o.Source, o.Source.validate()
}

func parse(payload []byte) (o Object, err error) {
	annotations := map[string][]byte{}
	err = eachField(payload, func(f wireField) error {
		switch {
		case f.number == fieldData && f.kind == protowire.BytesType:
			o.Data = f.bytes
		case f.number == fieldKeyID && f.kind == protowire.BytesType:
			o.Source.KeyID = string(f.bytes)
			if !utf8.Valid(f.bytes) {
				return errors.New("key_id is not valid UTF-8")
			}
		case f.number == fieldDEKSource && f.kind == protowire.BytesType:
			o.Source.EncryptedDEK = slices.Clone(f.bytes)
		case f.number == fieldAnnotations && f.kind == protowire.BytesType:
			return parseAnnotation(f.bytes, annotations)
		case f.number == fieldSourceType && f.kind == protowire.VarintType:
			o.Source.Type = sourceType(f.varint)
		}
		return nil
	})
	for k, v := range annotations {
		o.Source.Annotations = append(o.Source.Annotations, Annotation{Key: k, Value: v})
	}
	slices.SortFunc(o.Source.Annotations, byKey)
	return o, err
}

// sourceType narrows as protobuf does for enums: to the low 32 bits.
func sourceType(v uint64) SourceType { return SourceType(int32(v & math.MaxUint32)) }

func parseAnnotation(entry []byte, into map[string][]byte) error {
	var key string
	value := []byte{}
	err := eachField(entry, func(f wireField) error {
		switch {
		case f.number == fieldMapKey && f.kind == protowire.BytesType:
			key = string(f.bytes)
			if !utf8.Valid(f.bytes) {
				return errors.New("annotation key is not valid UTF-8")
			}
		case f.number == fieldMapValue && f.kind == protowire.BytesType:
			value = slices.Clone(f.bytes)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("annotation: %w", err)
	}
	into[key] = value
	return nil
}

// wireField is one field as it stands in the encoding; bytes and varint are
// set for their kinds only.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	bytes  []byte
	varint uint64
}

func eachField(b []byte, do func(wireField) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("not a protobuf message: %w", protowire.ParseError(n))
		}
		if number > protowire.MaxValidNumber { // which ConsumeTag leaves to its caller
			return fmt.Errorf("not a protobuf message: field number %d is larger than any", number)
		}
		b = b[n:]
		f := wireField{number: number, kind: kind}
		switch kind {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("field %d: %w", number, protowire.ParseError(n))
		}
		b = b[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}
