package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// asFaulty is the first argument of this test when it is a plugin with a fault.
const asFaulty = "be-a-faulty-plugin"

// faulty is a plugin with a key file at a path, on a socket. What is in the file at the third path says what
// is wrong with it: nothing, "sloppy" loses newlines at the end, "denied" is not let in,
// "hangs" tells how it is and wraps nothing, "port N" wants a port.
func faulty(args []string) {
	socket, path, fault := args[0], args[1], args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // nobody has to remember it
	defer cancel()
	keeper, err := kmsplugin.NewKeeper(keyfile.At(path), kmsplugin.Config{Poll: 50 * time.Millisecond})
	if err == nil {
		var server *kmsplugin.Server
		if server, err = kmsplugin.Listen(ctx, "unix://"+socket, wrong{keeper, fault}); err == nil {
			wait := keeper.Start(ctx)
			if port, ok := strings.CutPrefix(read(fault), "port "); ok {
				held, err := net.Listen("tcp", "127.0.0.1:"+port)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				defer held.Close()
			}
			err = errors.Join(server.Serve(ctx), wait())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func read(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

type wrong struct {
	*kmsplugin.Keeper
	fault string
}

func (w wrong) Status(ctx context.Context) (string, error) {
	if read(w.fault) == "denied" {
		return "", fmt.Errorf("%w: the login was refused", kmsplugin.ErrDenied)
	}
	return w.Keeper.Status(ctx)
}

func (w wrong) Encrypt(ctx context.Context, uid string, dek []byte) (kmsplugin.Sealed, error) {
	if read(w.fault) == "hangs" {
		<-ctx.Done()
	}
	return w.Keeper.Encrypt(ctx, uid, dek)
}

func (w wrong) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	plaintext, err := w.Keeper.Decrypt(ctx, uid, sealed)
	if read(w.fault) == "sloppy" {
		plaintext = bytes.TrimSuffix(plaintext, []byte("\n\n\n\n")) // as no random one has
	}
	return plaintext, err
}

// faultyPlugin is one of a draft, whose fault is a credential of it.
func (r *rig) faultyPlugin(keyID int, fault string) bundle.DraftPlugin {
	program, err := os.Executable()
	require.NoError(r.t, err)
	content, err := os.ReadFile(program)
	require.NoError(r.t, err)
	settings := "apiVersion: " + bundle.APIVersion + "\nkind: " + bundle.SettingsKind + "\nprogram: {path: " + program + ", sha256: \"" + hashOf(content) + "\"}\n" +
		"command:\n  kek: a key file\n  arguments: [" + asFaulty + ", $(socket), " + r.keys(keyID) + ", $(secret/login/fault)]\n"
	return bundle.DraftPlugin{KeyID: bundle.KeyID(keyID), Settings: []byte(settings),
		Parts: map[bundle.Part][]byte{{Source: bundle.Secret, Name: "login", Key: "fault"}: []byte(fault)}}
}

// waits is that a report tells of something that is waited for.
func waits(what string) func(*Report) bool {
	return func(r *Report) bool { return strings.Contains(strings.Join(r.Waits, "\n"), what) }
}

func TestAPluginThatWorksAndIsNotFitIsRefusedAndNotStartedAgainUntilItIsAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	d := r.draft(2, 2, 1)
	d.Plugins[0] = r.faultyPlugin(2, "sloppy")
	r.give(d)
	r.until("it is refused", waits("revision 2 waits for keyID 2: it is refused, until the bundle has another one: quick checks: round-trip"))
	report := r.until("it is ended", func(r *Report) bool { return len(r.Plugins) == 1 })
	require.Equal(t, uint64(1), report.InEffect.Revision)
	require.Len(t, report.Trials, 2, "of what is accepted too")
	require.Equal(t, preflight.Refused, report.Trials[1].Outcome)
	starts := strings.Count(r.logged(), "start keyID 2 ")

	away := r.o.Bundles + ".away"
	require.NoError(t, os.Rename(r.o.Bundles, away))
	r.until("the folder is seen to be away", func(r *Report) bool { return r.Wanted == nil })
	require.NoError(t, os.Rename(away, r.o.Bundles))
	r.until("it is refused still", waits("revision 2 waits for keyID 2: it is refused"))
	d.Revision = 3 // the same once more
	r.give(d)
	r.until("it is refused, too", waits("revision 3 waits for keyID 2: it is refused"))
	require.Equal(t, starts, strings.Count(r.logged(), "start keyID 2 "), "the same is not tried again")

	d = r.draft(4, 2, 1)
	d.Plugins[0] = r.faultyPlugin(2, "nothing")
	r.give(d)
	r.until("another one is tried, and accepted", settled(4, 2))
}

// A plugin is tried with the credential that it will have, and with no other: one that had another before
// may go on with what it got by that.
func TestAPluginIsTriedAnewWithANewCredential(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	d.Plugins[0] = r.faultyPlugin(1, "denied")
	r.give(d)
	r.follows()
	r.start()
	report := r.until("it is not let in", func(r *Report) bool { return len(r.Plugins) == 1 && strings.Contains(r.Plugins[0].Message, "refused") })
	instance := report.Plugins[0].Instance
	d = r.draft(2, 1)
	d.Plugins[0] = r.faultyPlugin(1, "nothing")
	r.give(d)
	report = r.until("it is in effect", settled(2, 1))
	require.NotEqual(t, instance, report.Plugins[0].Instance)
}

// A blip needs no change of any text.
func TestAPluginThatIsLetInLaterIsAcceptedWithoutAChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	away := r.folder + "/away"
	require.NoError(t, os.Rename(r.keys(1), away))
	d := r.draft(1, 2)
	d.EncryptionConfig, d.Plugins[0].KeyID = []byte(r.configOf(1)), 1
	d.Plugins[0].Settings = r.settings(r.folder+"/kek-1.json", "")
	r.give(d)
	r.follows()
	r.start()
	r.until("it does not come", func(r *Report) bool { return len(r.Problems) > 0 })
	require.NoError(t, os.Rename(away, r.folder+"/kek-1.json"))
	r.until("it is in effect", settled(1, 1))
}

func TestTwoPluginsThatWantOnePortAreToldByName(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, errors.Join(err, listener.Close()))
	r := newRig(t)
	d := r.draft(1, 1)
	d.Plugins[0] = r.faultyPlugin(1, "port "+port)
	r.give(d)
	r.follows()
	r.start()
	first := r.until("the first is in effect", settled(1, 1)).Plugins[0].Instance
	d = r.draft(2, 2, 1)
	d.Plugins[1] = r.faultyPlugin(1, "port "+port)
	d.Plugins[0] = r.faultyPlugin(2, "port "+port)
	r.give(d)
	report := r.until("it is told", func(r *Report) bool { return strings.Contains(strings.Join(r.Problems, ""), "address already in use") })
	require.Contains(t, strings.Join(report.Problems, "\n"), "port "+port+" is that of the plugin of keyID 1, "+first+", which runs beside it")
	require.Equal(t, uint64(1), report.InEffect.Revision)
}

// versions are the IDs of those of a key file, the oldest first.
func (r *rig) versions(path string) []string {
	said, err := exec.Command(realPlugin(r.t), "keyfile", "list", "--key-file", path, "-o", "json").Output()
	require.NoError(r.t, err, string(said))
	var all struct {
		Keys []struct{ ID string }
	}
	require.NoError(r.t, json.Unmarshal(said, &all), string(said))
	var ids []string
	for _, v := range all.Keys {
		ids = append(ids, v.ID)
	}
	return ids
}

// The rule says that a pinned version is changed in place, and so does the node: with the proof that what the
// former one wrapped opens, also where that one works no longer.
func TestAnotherPinnedVersionIsTakenInPlaceAsDiffSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	said, err := exec.Command(realPlugin(t), "keyfile", "rotate", "--key-file", r.keys(1)).CombinedOutput()
	require.NoError(t, err, string(said))
	ids := r.versions(r.keys(1))
	require.Len(t, ids, 2)
	pinned := func(revision uint64, id string) *bundle.Bundle {
		d := r.draft(revision, 1)
		d.Plugins[0].Settings = []byte(strings.Replace(string(r.settings(r.keys(1), "")), "path:", "pin: "+id+", path:", 1))
		return r.give(d)
	}
	former := pinned(1, ids[0])
	r.follows()
	r.start()
	before := r.until("it is in effect", settled(1, 1)).Plugins[0]
	now := pinned(2, ids[1])
	require.Equal(t, bundle.InPlace, bundle.Diff(former, now, nil).Effect())
	after := r.until("the other version is", settled(2, 1)).Plugins[0]
	require.NotEqual(t, before.KeyIDHash, after.KeyIDHash)
}

// giveVault puts a bundle into the folder with one plugin, of the key k in a Vault.
func (r *rig) giveVault(s *vaulttest.Server, revision uint64, address, token, more string) *bundle.Bundle {
	r.t.Helper()
	return r.give(bundle.Draft{Revision: revision, EncryptionConfig: []byte(r.configOf(1)), Plugins: []bundle.DraftPlugin{{KeyID: 1,
		Settings: []byte(fmt.Sprintf("apiVersion: %s\nkind: %s\nvault: {address: %q, keyPath: transit/keys/k, tls: {caBundle: ca, serverName: vault.test}, auth: {token: {secret: login}}%s}\n",
			bundle.APIVersion, bundle.SettingsKind, address, more)),
		Parts: map[bundle.Part][]byte{
			{Source: bundle.ConfigMap, Name: "ca", Key: "ca-bundle.crt"}: []byte(read(s.CA)),
			{Source: bundle.Secret, Name: "login", Key: "token"}:         []byte(token),
		}}}})
}

func TestAnotherPinnedVersionOfVaultAndAnotherNameOfItAreTakenInPlace(t *testing.T) {
	t.Parallel()
	s := vaulttest.Start(t)
	s.CreateKey("k", "")
	s.CreateKey("other", "")
	s.Rotate("k")
	policy, err := vault.Policy(vault.Config{Address: s.Address, Mount: "transit", Key: "k"})
	require.NoError(t, err)
	other, err := vault.Policy(vault.Config{Address: s.Address, Mount: "transit", Key: "other"})
	require.NoError(t, err)
	s.Policy("plugin", policy+"\n"+other)
	token := s.Token(time.Hour, "plugin")
	r := newRig(t)
	give := func(revision uint64, address, more string) *bundle.Bundle {
		return r.giveVault(s, revision, address, token, more)
	}
	first := give(1, s.Address, ", keyVersion: \"1\"")
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	second := give(2, s.Address, ", keyVersion: \"2\"")
	require.Equal(t, bundle.InPlace, bundle.Diff(first, second, nil).Effect())
	r.until("the other version is", settled(2, 1))

	alias := strings.Replace(s.Address, "127.0.0.1", "localhost", 1)
	third := give(3, alias, ", keyVersion: \"2\"")
	require.Equal(t, bundle.Undecided, bundle.Diff(second, third, nil).Effect())
	r.until("another name of the same is", settled(3, 1))

	give(4, alias, ", keyVersion: \"1\"") // where that is another address too, it is not known
	r.until("it is back", settled(4, 1))
	give(5, s.Address, ", keyVersion: \"2\"")
	report := r.until("the reason is told", waits("not known: vault.address: it may lead to the same KEK, rotated meanwhile"))
	require.Equal(t, uint64(4), report.InEffect.Revision)
}

// A node has what the one in use wrapped on its own disk, and none of the keys of anybody.
func TestWhatIsKeptOfAKeyIsItsHashAndARandomValue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	report := r.runs()
	require.Eventually(t, func() bool {
		k, err := readKept(r.o.State + "/" + keptName)
		return err == nil && k.keys["1"].Sample != nil && k.keys["1"].KeyIDHash == report.Plugins[0].KeyIDHash &&
			hashed.ID(k.keys["1"].Sample.Wrapped.KeyID) == k.keys["1"].KeyIDHash && len(k.keys["1"].Sample.DEK) == 32
	}, time.Minute, 10*time.Millisecond)
}

// What is a credential to one is all its configuration to another, with the name of the key in it.
func TestAFileThatHasSomebodyElsesPluginTakeAnotherKEKIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	d.Plugins[0] = r.command(r.read(r.keys(1)))
	r.give(d)
	r.follows()
	r.start()
	before := r.until("it is in effect", settled(1, 1)).Plugins[0]
	d = r.draft(2, 1)
	d.Plugins[0] = r.command(r.read(r.keys(2)))
	r.give(d)
	r.until("it is refused", waits("revision 2 waits for keyID 1: it is refused, until the bundle has another one: open what the plugin in use has wrapped: it cannot"))
	after := r.until("it is ended", func(r *Report) bool { return len(r.Plugins) == 1 })
	require.Equal(t, uint64(1), after.InEffect.Revision)
	require.Equal(t, []string{before.Instance, before.KeyIDHash}, []string{after.Plugins[0].Instance, after.Plugins[0].KeyIDHash})
}

// Who has the hash of a trial, as a person who reads what was tried, cannot try which PIN it is of.
func TestTheHashOfATrialHasTheSaltOfTheBundle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, os.MkdirAll(r.o.Run, 0o700))
	hashes := map[string]bool{}
	for _, salt := range []string{"", "one", "two"} {
		d := r.draft(1, 1)
		d.Salt, d.Plugins[0] = []byte(salt), r.command(r.read(r.keys(1)))
		b, err := bundle.New(d)
		require.NoError(t, err)
		found, err := Try(t.Context(), b, r.o)
		require.NoError(t, err)
		hashes[found[0].Hash] = true
	}
	require.Len(t, hashes, 3)
}

func TestTryTellsOfEachPluginAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, os.MkdirAll(r.o.Run, 0o700))
	d := r.draft(1, 3, 2, 1)
	d.Plugins[0] = r.faultyPlugin(3, "sloppy")
	d.Plugins[1] = r.faultyPlugin(2, "denied")
	b, err := bundle.New(d)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log := r.o.Log
	r.o.Log = func(line string) {
		log(line)
		if all := r.logged(); strings.Contains(all, ": passed") && strings.Contains(all, ": refused") {
			stop() // or the one that is not let in would be waited for
		}
	}
	found, err := Try(ctx, b, r.o)
	require.NoError(t, err)
	var all []string
	for _, f := range found {
		all = append(all, f.KeyID+" "+string(f.Outcome))
	}
	require.Equal(t, []string{"1 passed", "2 not yet", "3 refused"}, all)
	require.NotEmpty(t, found[1].Failure.Text)
	left, err := os.ReadDir(r.o.Run)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoFileExists(t, r.o.ConfigFile)

	require.NoError(t, os.Mkdir(r.folder+"/kms", 0o700))
	listen(t, r.folder+"/kms/kms-1.sock")
	b, err = bundle.New(r.draft(1, 1))
	require.NoError(t, err)
	r.o.Log = log
	found, err = Try(t.Context(), b, r.o)
	require.NoError(t, err)
	require.Equal(t, preflight.NotYet, found[0].Outcome)
	require.Contains(t, found[0].Failure.Text, "somebody listens at "+r.folder+"/kms/kms-1.sock who was not started by this node")
}

// Nobody else knows what runs there, or has the credentials overwritten.
func TestTryEndsWhatOneLeftThatWasKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, os.MkdirAll(r.o.Run, 0o700))
	former := newRig(t)
	former.o = r.o.within(r.o.Run + "/" + tries + "1")
	former.o.Drain = false // what is killed ends nothing
	require.NoError(t, os.MkdirAll(former.o.Run, 0o700))
	former.give(former.draft(1, 1))
	former.start()
	former.until("its plugin runs", func(r *Report) bool { return len(r.Plugins) == 1 && r.Plugins[0].Well })
	found, _, err := instances{former.o.Run + "/instances"}.all()
	require.NoError(t, err)
	left, err := recordOf(found[0].Spec)
	require.NoError(t, err)
	former.end()
	require.True(t, lives(left.Life.PID))
	require.NoError(t, os.WriteFile(former.o.Run+"/"+lockName, nil, 0o600)) // as it stays then

	b, err := bundle.New(r.draft(1, 1))
	require.NoError(t, err)
	verdict, err := Try(t.Context(), b, r.o)
	require.NoError(t, err)
	require.Equal(t, preflight.Passed, verdict[0].Outcome)
	require.False(t, lives(left.Life.PID))
	entries, err := os.ReadDir(r.o.Run)
	require.NoError(t, err)
	require.Empty(t, entries)
}
