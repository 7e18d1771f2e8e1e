package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

const privateKey = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\nAgEAAoIBAQDAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n"

func partName(source bundle.Source, key string) string {
	return bundle.Part{Source: source, Name: "vault", Key: key}.FileName(1)
}

func TestNoLineOfACredentialIsPassedOn(t *testing.T) {
	var known secrets
	known.add(partName(bundle.Secret, "tls.key"), []byte(privateKey))
	known.add(partName(bundle.Secret, "role-id"), []byte("role"))
	known.add(partName(bundle.Secret, "secret-id"), []byte("role-and-more\n"))
	known.add(partName(bundle.ConfigMap, "ca-bundle.crt"), []byte("everybody knows"))
	var got []string
	l := &lines{prefix: "p: "}
	tell := func(text string) { l.tell([]byte(text), known, func(line string) { got = append(got, line) }) }
	tell("bad key: " + privateKey)
	tell(fmt.Sprintf("bad key: %q\n", privateKey))
	tell("login of role-and-")
	tell("more failed, everybody knows\n")
	all := strings.Join(got, "\n")
	require.NotContains(t, all, "MIIE")
	require.NotContains(t, all, "AgEA")
	require.NotContains(t, all, "more", "one that begins with another goes as a whole")
	require.Contains(t, all, "login of (credential) failed, everybody knows")
}

func TestOfALineWithoutEndNoMoreThanItsBeginningIsTold(t *testing.T) {
	var got []string
	l := &lines{prefix: "p: "}
	tell := func(text string) {
		l.tell([]byte(text), secrets{[]byte("secret-id")}, func(line string) { got = append(got, line) })
	}
	tell(strings.Repeat("x", maxRead-len("secr")) + "secr")
	tell("et-id" + strings.Repeat("y", maxRead)) // by which nobody would know it
	tell("z\nthe next\n")
	require.Len(t, got, 2)
	require.Len(t, got[0], len("p: ")+maxLine)
	require.Equal(t, "p: the next", got[1])
}

func TestALogThatGrowsFasterThanItIsReadDoesNotFillTheMemory(t *testing.T) {
	l := &lines{path: t.TempDir() + "/" + logName}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer file.Close()
	text := []byte(strings.Repeat(strings.Repeat("x", 1023)+"\n", 4<<10))
	for range 4 {
		_, err := file.Write(text)
		require.NoError(t, err)
		told := 0
		require.NoError(t, l.passOn(nil, func(string) { told++ }))
		require.Positive(t, told)
		info, err := file.Stat()
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(len(text)))
	}
	_, err = file.WriteString("the end of a line\nanother\n")
	require.NoError(t, err)
	var got []string
	require.NoError(t, l.passOn(nil, func(line string) { got = append(got, line) }))
	require.Equal(t, []string{"another"}, got)
}
