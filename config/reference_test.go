package config

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"pgregory.net/rapid"
)

// upstream is what kube-apiserver says to a file: undecodable, invalid fields,
// or neither.
type upstream struct {
	decodeErr error
	invalid   field.ErrorList
	// panicked is kube-apiserver's own answer to an internal version.
	panicked bool
}

func (u upstream) accepts() bool { return u.decodeErr == nil && len(u.invalid) == 0 && !u.panicked }

// theirDecoder is put together apart from ours, as kube-apiserver does it.
var theirDecoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(apiserver.AddToScheme(scheme))
	utilruntime.Must(apiserverv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}()

func askUpstream(data []byte, reload bool) (answer upstream) {
	object, _, err := theirDecoder.Decode(data, nil, nil)
	if err != nil {
		return upstream{decodeErr: err}
	}
	file, ok := object.(*apiserver.EncryptionConfiguration)
	if !ok {
		return upstream{decodeErr: fmt.Errorf("unexpected type %T", object)}
	}
	defer func() {
		if recover() != nil {
			answer = upstream{panicked: true}
		}
	}()
	return upstream{invalid: validation.ValidateEncryptionConfiguration(file, reload)}
}

// beyond reports whether kube-apiserver's validation does not know a problem.
// This is the whole list.
func beyond(problem error) bool {
	var e *field.Error
	if errors.As(problem, &e) {
		return e.Origin == originMasked || e.Origin == originGate || e.Origin == originName || e.Origin == originPairs
	}
	text := problem.Error()
	return strings.HasPrefix(text, "more than one YAML document") ||
		strings.HasPrefix(text, "unexpected config type apiserver.config.k8s.io/__internal") ||
		strings.Contains(text, "bytes long, at most")
}

// agree holds Parse to kube-apiserver: the same verdict, and the same fields
// wrong in the same way. It gives Parse's result.
func agree(t rapid.TB, data []byte, reload bool) (*Configuration, error) {
	t.Helper()
	theirs := askUpstream(data, reload)
	ours, err := Parse(data, Options{Reload: reload, KMSv1: true})
	var refused *Error
	if err == nil {
		require.True(t, theirs.accepts(), "only we accept it: %v %v\n%s", theirs.decodeErr, theirs.invalid, data)
		return ours, nil
	}
	require.ErrorAs(t, err, &refused)
	var common []*field.Error
	var others []error
	for _, problem := range refused.Problems {
		var e *field.Error
		switch {
		case beyond(problem):
		case errors.As(problem, &e):
			common = append(common, e)
		default:
			others = append(others, problem)
		}
	}
	if theirs.panicked || strings.Contains(err.Error(), "unexpected config type apiserver.config.k8s.io/__internal") {
		return nil, err // there is nothing to compare
	}
	if theirs.decodeErr != nil {
		// Parse goes on after a strict decoding error and reports both.
		require.NotEmpty(t, others, "only they cannot decode it: %v\n%s", theirs.decodeErr, data)
		return nil, err
	}
	require.Empty(t, others, "only we cannot decode it\n%s", data)
	require.Equal(t, summary(theirs.invalid), summary(common), "%s", data)
	return nil, err
}

// summary is field and type of each problem.
func summary(list []*field.Error) []string {
	lines := make([]string, 0, len(list))
	for _, e := range list {
		lines = append(lines, fmt.Sprintf("%s: %s", e.Field, e.Type))
	}
	sort.Strings(lines)
	return lines
}

// requireTheirWords holds the texts of problems to kube-apiserver's, which
// operators search for: ours begin with them and go on to the remedy.
func requireTheirWords(t rapid.TB, err error, theirs field.ErrorList) {
	t.Helper()
	plain := strings.NewReplacer(`"`, "", "apiVersion apiVersion", "apiVersion")
	for _, e := range theirs {
		want := plain.Replace(e.Detail)
		found := false
		for _, problem := range err.(*Error).Problems {
			var ours *field.Error
			found = found || errors.As(problem, &ours) && ours.Field == e.Field && strings.HasPrefix(plain.Replace(ours.Detail), want)
		}
		require.True(t, found, "kube-apiserver says %v\nwe say %v", e, err)
	}
}

func TestFilesOfThisFolderAgreeWithKubeAPIServer(t *testing.T) {
	for _, file := range files(t, "testdata/*/*.*") {
		for _, reload := range []bool{false, true} {
			agree(t, read(t, file), reload)
		}
	}
}

// loadUpstream is kube-apiserver's whole way from file to transformers. The
// file must not name a plugin, which it would call.
func loadUpstream(t rapid.TB, file string, data []byte) (loaded *encryptionconfig.EncryptionConfiguration, err error) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, data, 0o600))
	fips140.WithoutEnforcement(func() {
		loaded, err = encryptionconfig.LoadEncryptionConfig(context.Background(), file, false, "differential")
	})
	return loaded, err
}
