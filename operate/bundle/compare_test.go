package bundle

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plugin is one with settings and whatever files they need.
func plugin(t *testing.T, settings string) *Plugin {
	t.Helper()
	s, err := ParseSettings([]byte(settings))
	require.NoError(t, err)
	d := DraftPlugin{KeyID: 7, Settings: []byte(settings), Parts: map[Part][]byte{}}
	for _, part := range s.Parts() {
		d.Parts[part] = []byte(secretID)
	}
	p, err := newPlugin(d)
	require.NoError(t, err)
	return p
}

var (
	same    = Evidence{Was: "k1", Is: "k1", Opened: Yes, OpenedBack: Yes}
	rotated = Evidence{Was: "k1", Is: "k2", Opened: Yes, OpenedBack: Yes}
	other   = Evidence{Was: "k1", Is: "k2", Opened: No}
)

func TestWhichChangesNeedAnotherKeyID(t *testing.T) {
	const hsm = wrapper + "pkcs11: {module: /m.so, token: t, key: kek, secret: hsm}"
	const tpm = wrapper + "tpm: {path: /k, device: /dev/tpmrm0}"
	key := keyFileSettings("/k")
	own := command("$(socket)")
	for name, row := range map[string]struct {
		from, to string
		field    string
		// want without evidence, and with that of the same KEK.
		want, proven Effect
	}{
		"nothing":        {vaultSettings, vaultSettings, "", NoChange, NoChange},
		"spelling":       {vaultSettings, "# of the team\n" + vaultSettings, "", NoChange, NoChange},
		"namespace":      {vaultSettings, vaultSettings + "  namespace: a", "vault.namespace", AnotherKeyID, InPlace},
		"mount":          {vaultSettings, strings.Replace(vaultSettings, "transit/keys", "other/keys", 1), "vault.keyPath", AnotherKeyID, InPlace},
		"key":            {vaultSettings, strings.Replace(vaultSettings, "keys/kube", "keys/kube2", 1), "vault.keyPath", AnotherKeyID, InPlace},
		"address":        {vaultSettings, strings.Replace(vaultSettings, "vault.example", "vault2.example", 1), "vault.address", Undecided, InPlace},
		"version":        {vaultSettings, vaultSettings + "  keyVersion: \"2\"", "vault.keyVersion", InPlace, InPlace},
		"auth namespace": {vaultSettings, vaultSettings + "  authNamespace: /", "vault.authNamespace", InPlace, InPlace},
		"CA":             {vaultSettings, vaultWith("tls", "  tls: {caBundle: other}"), "vault.tls.caBundle", InPlace, InPlace},
		"server name":    {vaultSettings, vaultWith("tls", "  tls: {caBundle: vault-ca, serverName: v}"), "vault.tls.serverName", InPlace, InPlace},
		"AppRole":        {vaultSettings, vaultWith("appRole", "    appRole: {secret: other}"), "vault.auth.appRole.secret", InPlace, InPlace},
		"login":          {vaultSettings, vaultWith("appRole", "    token: {secret: other}"), "vault.auth.token.secret", InPlace, InPlace},
		"poll":           {vaultSettings, vaultSettings + "  poll: 5s", "vault.poll", InPlace, InPlace},
		"binary":         {key, key + "program: {sha256: \"" + digest + "\"}", "program.sha256", InPlace, InPlace},
		"image":          {key, key + "program: {image: localhost/x@" + digest + "}", "program.image", InPlace, InPlace},
		"back end":       {key, wrapper + "tpm: {path: /k}", "back end", AnotherKeyID, InPlace},
		"file":           {key, keyFileSettings("/j"), "keyFile.path", Undecided, InPlace},
		"pin":            {key, wrapper + "keyFile: {path: /k, pin: 2-abcdef01}", "keyFile.pin", InPlace, InPlace},
		"module":         {hsm, strings.Replace(hsm, "/m.so", "/n.so", 1), "pkcs11.module", Undecided, InPlace},
		"token":          {hsm, strings.Replace(hsm, "token: t", "token: u", 1), "pkcs11.token", Undecided, InPlace},
		"label":          {hsm, strings.Replace(hsm, "key: kek", "key: kek2", 1), "pkcs11.key", Undecided, InPlace},
		"PIN":            {hsm, strings.Replace(hsm, "secret: hsm", "secret: hsm2", 1), "pkcs11.secret", InPlace, InPlace},
		"sessions":       {hsm, strings.Replace(hsm, "key: kek", "key: kek, sessions: 2", 1), "pkcs11.sessions", InPlace, InPlace},
		"device":         {tpm, strings.Replace(tpm, "rm0", "rm1", 1), "tpm.device", Undecided, InPlace},
		"kek":            {own, strings.Replace(own, "keys/k", "keys/j", 1), "command.kek", AnotherKeyID, InPlace},
		"arguments":      {own, command("$(socket)", "-v"), "command.arguments", Undecided, InPlace},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := plugin(t, row.from), plugin(t, row.to)
			c := Compare(from, to, Evidence{})
			require.Equal(t, row.want, c.Effect, c.Why)
			if row.field != "" {
				require.Contains(t, fieldsOf(c), row.field)
			}
			require.Equal(t, row.proven, Compare(from, to, same).Effect)
			require.Equal(t, AnotherKeyID, Compare(from, to, other).Effect, "what it did not open is under another KEK, whatever the settings say")
			require.Equal(t, row.want, Compare(from, to, rotated).Effect)
			require.NotContains(t, c.Why, "sesame")
		})
	}
}

// What a node does is what is said here: a rule alone is no proof for it.
func TestANodeTakesInPlaceWhatIsProvenAlone(t *testing.T) {
	pinned := vaultSettings + "  keyVersion: \"2\""
	moved := strings.Replace(vaultSettings, "vault.example", "vault2.example", 1)
	for name, row := range map[string]struct {
		to   string
		seen Evidence
		want bool
	}{
		"nothing seen":                     {vaultSettings + "  poll: 5s", Evidence{}, false},
		"the key_ids alone":                {vaultSettings + "  poll: 5s", Evidence{Was: "k1", Is: "k1"}, false},
		"proven":                           {vaultSettings + "  poll: 5s", same, true},
		"rotated meanwhile":                {vaultSettings + "  poll: 5s", rotated, true},
		"another KEK":                      {vaultSettings + "  poll: 5s", other, false},
		"pinned, and nothing seen":         {pinned, Evidence{}, false},
		"pinned, and opened":               {pinned, rotated, true},
		"pinned, and opened one way alone": {pinned, Evidence{Was: "k1", Is: "k2", Opened: Yes, OpenedBack: No}, false},
		"moved, and nothing seen":          {moved, Evidence{}, false},
		"moved, and the same":              {moved, same, true},
		"moved, with another version":      {moved, rotated, false},
	} {
		require.Equal(t, row.want, Compare(plugin(t, vaultSettings), plugin(t, row.to), row.seen).TakenInPlace(), name)
	}
}

func fieldsOf(c Comparison) []string {
	var fields []string
	for _, change := range c.Changes {
		fields = append(fields, change.Field)
	}
	return fields
}

func TestAKEKIsKnownByKeyIDAndByTrial(t *testing.T) {
	for name, row := range map[string]struct {
		seen Evidence
		want kekVerdict
		why  string
	}{
		"nothing seen":                       {Evidence{}, unknownKEK, "ask the one in use"},
		"one key_id":                         {Evidence{Was: "a", Opened: Yes}, unknownKEK, "ask the one in use"},
		"the other key_id":                   {Evidence{Is: "a", Opened: Yes}, unknownKEK, "ask the one in use"},
		"not tried":                          {Evidence{Was: "a", Is: "a"}, unknownKEK, "have it try"},
		"not tried, and others":              {Evidence{Was: "a", Is: "b"}, unknownKEK, "have it try"},
		"same":                               {Evidence{Was: "a", Is: "a", Opened: Yes}, sameKEK, "both name"},
		"same, and the former works no more": {Evidence{Was: "a", Is: "a", Opened: Yes}, sameKEK, "both name"},
		"rotated":                            {Evidence{Was: "a", Is: "b", Opened: Yes}, otherVersion, "it opens"},
		"opened one way alone":               {Evidence{Was: "a", Is: "a", Opened: Yes, OpenedBack: No}, anotherKEK, "cannot be read"},
		"another":                            {Evidence{Was: "a", Is: "b", Opened: No}, anotherKEK, "did not open"},
		"another of the same key_id":         {Evidence{Was: "a", Is: "a", Opened: No}, anotherKEK, "another KEK has that key_id"},
		"another, whose key_id is not known": {Evidence{Opened: No}, anotherKEK, "did not open"},
	} {
		got, why := row.seen.verdict()
		require.Equal(t, row.want, got, name)
		require.Contains(t, why, row.why, name)
	}
}

func TestANewCredentialIsInPlaceAndNotShown(t *testing.T) {
	from, d := made(t, draft()), draft()
	d.Plugins[0].Parts[Part{Secret, "vault-approle", "secret-id"}] = []byte("other-sesame")
	diff := Diff(from, made(t, d), nil)
	require.Equal(t, InPlace, diff.Effect())
	require.Equal(t, []PluginDifference{{7, Comparison{
		Effect: InPlace, Why: `secret "vault-approle", key "secret-id": credentials and certificates are read again by the plugin that runs`,
		Changes: []Change{{Field: `secret "vault-approle", key "secret-id"`, Effect: InPlace, Why: "credentials and certificates are read again by the plugin that runs"}},
	}}}, diff.Changed)
}

// The file may be a token, or the configuration of the plugin with the name of the key in it.
func TestAFileOfSomebodyElsesPluginMayNameAnotherKEK(t *testing.T) {
	settings := command("$(socket)", "$(secret/azure/config)")
	from, to := plugin(t, settings), plugin(t, settings)
	to.parts = map[Part][]byte{{Secret, "azure", "config"}: []byte("key: other-sesame")}
	for _, row := range []struct {
		seen Evidence
		want Effect
	}{{Evidence{}, Undecided}, {Evidence{Was: "k1", Is: "k1"}, Undecided}, {same, InPlace}, {rotated, InPlace}, {other, AnotherKeyID}} {
		c := Compare(from, to, row.seen)
		require.Equal(t, row.want, c.Effect, c.Why)
		require.Equal(t, row.want == InPlace, c.TakenInPlace())
		require.NotContains(t, c.Why, "sesame")
	}
}

func TestPluginsThatComeAndGo(t *testing.T) {
	from := made(t, draft())
	d := draft()
	d.EncryptionConfig = configFor(9, 7)
	d.Plugins[1].KeyID = 9
	diff := Diff(from, made(t, d), nil)
	require.Equal(t, []KeyID{9}, diff.Added)
	require.Equal(t, []KeyID{2}, diff.Removed)
	require.Equal(t, NoChange, diff.Effect())
	require.NotEmpty(t, diff.Config)
	require.Equal(t, Difference{}, Diff(from, from, nil))
}

// A field that is added has to say what a change of it needs.
func TestEveryFieldOfTheSettingsHasARule(t *testing.T) {
	there := map[string]bool{"apiVersion": true, "kind": true}
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at := strings.TrimPrefix(path+"."+name, ".")
			kind := field.Type
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			switch {
			case field.Anonymous:
				walk(path, kind)
			case kind.Kind() == reflect.Struct:
				walk(at, kind)
			default:
				there[at] = true
			}
		}
	}
	walk("", reflect.TypeFor[Settings]())
	for field := range there {
		if field != "apiVersion" && field != "kind" {
			require.NotEqual(t, ofAnything, rules[field], "%s has no rule", field)
		}
	}
	for field := range rules {
		require.True(t, there[field] || field == "vault.auth.cert", "%s is no field", field)
	}
}
