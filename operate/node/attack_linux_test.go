package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// T1
func TestAttackOtherKeyWhileFormerIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	r.until("first", settled(1, 1))
	// the former one cannot come: its key file is away for the moment
	require.NoError(t, os.Rename(r.keys(1), r.folder+"/away.json"))
	require.NoError(t, syscall.Kill(r.pid("1"), syscall.SIGKILL))
	r.until("down", func(r *Report) bool { return strings.Contains(strings.Join(r.Problems, ""), "ended by itself") })
	other := r.draft(2)
	other = bundle.Draft{Revision: 2, EncryptionConfig: []byte(r.configOf(1)), Plugins: []bundle.DraftPlugin{{KeyID: 1, Settings: r.settings(r.keys(9), "")}}}
	r.give(other)
	ok := func() bool {
		for range 500 {
			if settled(2, 1)(r.node.Report()) {
				return true
			}
			time.Sleep(20 * time.Millisecond)
		}
		return false
	}()
	t.Log("other KEK accepted under the same keyID:", ok)
	require.NoError(t, os.Rename(r.folder+"/away.json", r.folder+"/kek-1.json"))
	r.give(bundle.Draft{Revision: 3, EncryptionConfig: []byte(r.configOf(1)), Plugins: []bundle.DraftPlugin{{KeyID: 1, Settings: r.settings(r.folder+"/kek-1.json", "")}}})
	for range 500 {
		if settled(3, 1)(r.node.Report()) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Log("repair:", r.node.Report().Accepted.Revision, r.node.Report().Waits)
	require.False(t, ok)
}

// T2
func TestAttackSocketFolderMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	r.until("first", settled(1, 1))
	d := r.draft(2, 1)
	d.EncryptionConfig = []byte(strings.ReplaceAll(string(d.EncryptionConfig), "/kms/kms-", "/other/kms-"))
	r.give(d)
	for range 300 {
		if settled(2, 1)(r.node.Report()) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	text := r.read(r.o.ConfigFile)
	_, err := os.Stat(r.folder + "/other/kms-1.sock")
	t.Log(strings.Contains(text, "/other/kms-1.sock"), err, settled(2, 1)(r.node.Report()))
	require.False(t, strings.Contains(text, "/other/kms-1.sock") && err != nil)
}

// T3
func TestAttackSecretsOfManyLines(t *testing.T) {
	key := []byte("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\nAgEAAoIBAQDAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n")
	l := &lines{prefix: "p: "}
	var got []string
	l.tell([]byte("bad key: "+string(key)), [][]byte{key}, func(s string) { got = append(got, s) })
	l.tell([]byte(fmt.Sprintf("bad key: %q\n", key)), [][]byte{key}, func(s string) { got = append(got, s) })
	require.NotContains(t, strings.Join(got, "\n"), "MIIEvQIBADANBgkq")
}

// T3b: what a plugin says of a credential that was replaced, or when its keyID goes
func TestAttackSecretsOfFormer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	secret := r.read(r.keys(1))
	d.Plugins[0] = r.command(secret)
	r.give(d)
	r.follows()
	r.start()
	r.until("first", settled(1, 1))
	r.give(r.draft(2, 2))
	found, _, err := r.node.disk.all()
	require.NoError(t, err)
	f, err := os.OpenFile(filepath.Join(found[0].Spec.Folder, logName), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	for range 300 {
		fmt.Fprintln(f, "closing, revoking "+strings.Split(strings.TrimSpace(secret), "\n")[0]+" SECRET["+strings.ReplaceAll(strings.TrimSpace(secret), "\n", "")+"]")
		fmt.Fprintln(f, "now "+secret)
		time.Sleep(20 * time.Millisecond)
		if settled(2, 1)(r.node.Report()) {
			break
		}
	}
	for _, line := range strings.Split(r.logged(), "\n") {
		if strings.Contains(line, "SECRET[") {
			require.NotContains(t, line, strings.ReplaceAll(strings.TrimSpace(secret), "\n", "")[:60])
		}
	}
}

// T4
func TestAttackEndlessLog(t *testing.T) {
	folder := t.TempDir()
	l := &lines{path: folder + "/log", prefix: "p: "}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	var most int64
	for range 30 { // rounds
		for range 10 << 10 { // 10 MiB between two
			_, err := f.Write(line)
			require.NoError(t, err)
		}
		info, _ := f.Stat()
		most = max(most, info.Size())
		require.NoError(t, l.passOn(nil, func(string) {}))
	}
	require.Less(t, most, int64(24<<20))
}

// T5
func TestAttackDamagedStateAndOldFolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	r.until("first", settled(1, 1))
	r.give(r.draft(2, 2, 1))
	r.until("second", settled(2, 2))
	r.give(r.draft(1, 1)) // the folder goes back
	r.until("refused", func(r *Report) bool { return len(r.Waits) > 0 })
	r.end()
	require.NoError(t, os.WriteFile(r.o.State+"/"+keptName, []byte("not what was written"), 0o600))
	r.start()
	for range 300 {
		if rep := r.node.Report(); rep.InEffect != nil && rep.InEffect.Revision == 1 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.Contains(t, r.read(r.o.ConfigFile), "kms-2.sock", "the file lost keyID 2")
}

// T6
func TestAttackKeptIsOverwritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	d.Plugins[0] = r.command(r.read(r.keys(1)))
	r.give(d)
	r.follows()
	r.start()
	r.until("first", settled(1, 1))
	spy := r.folder + "/spy"
	require.NoError(t, os.Link(r.o.State+"/"+keptName, spy))
	r.give(r.draft(2, 2))
	r.until("second", settled(2, 1))
	require.Empty(t, strings.Trim(r.read(spy), "\x00"))
}
