package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
)

const bundleMakeHelp = `Make a bundle of an EncryptionConfiguration and files, and write it as a whole:

  --folder DIR            into a folder, which is made if it is not there. What it held
                          is replaced at once, overwritten and removed.
  --secret-name NS/NAME   as a Secret, in YAML on standard output: it holds credentials.

Each plugin is given by --plugin KEYID=FILE, the file with its settings, and each
part that they name by --secret NAME/KEY=FILE or --configmap NAME/KEY=FILE. A part
goes to every plugin that names it, so that one new credential reaches all of them.
What no plugin names is refused.

Revisions count up. With --after BUNDLE it is the one after that bundle's, with the
same salt: then what has not changed has the same hash, and can be seen not to have.

Exit codes:
  0  written
  1  what was given makes no bundle; nothing is written
  2  a file cannot be read, or the bundle not be written`

// maxPartFile is the longest file that is read, in bytes.
const maxPartFile = bundle.MaxSize

// bundleMake are the flags of bundle make.
type bundleMake struct {
	streams
	config     string
	plugins    []string
	secrets    []string
	configMaps []string
	after      string
	revision   uint64
	folder     string
	secretName string
}

func newBundleMake(s streams) *cobra.Command {
	m := bundleMake{streams: s}
	command := &cobra.Command{
		Use:   "make --config FILE --plugin KEYID=FILE... (--folder DIR | --secret-name NS/NAME)",
		Short: "Make a bundle of an encryption configuration and files",
		Long:  bundleMakeHelp,
		Example: `  atrest bundle make --config encryption.yaml --plugin 7=vault.yaml --revision 1 \
    --secret vault-approle/role-id=role-id --secret vault-approle/secret-id=secret-id \
    --configmap vault-ca/ca-bundle.crt=ca.crt --folder /var/lib/atrest/next
  atrest bundle make --config encryption.yaml --plugin 8=keyfile.yaml --after /var/lib/atrest/next \
    --secret-name kube-system/encryption-config | kubectl apply --server-side -f -`,
		Args: arguments(0, ""),
		RunE: func(*cobra.Command, []string) error { return m.run() },
	}
	flags := command.Flags()
	flags.StringVar(&m.config, "config", "", "file with the EncryptionConfiguration (required)")
	flags.StringArrayVar(&m.plugins, "plugin", nil, "KEYID=FILE, a plugin and the file with its settings; once for each")
	flags.StringArrayVar(&m.secrets, "secret", nil, "NAME/KEY=FILE, a credential that settings name; once for each")
	flags.StringArrayVar(&m.configMaps, "configmap", nil, "NAME/KEY=FILE, what else settings name, such as a CA bundle; once for each")
	flags.StringVar(&m.after, "after", "", "the bundle that this one comes after: it has the next revision and the same salt")
	flags.Uint64Var(&m.revision, "revision", 0, "number of the revision, from 1 on (required, or --after)")
	flags.StringVar(&m.folder, "folder", "", "write the bundle into this folder")
	flags.StringVar(&m.secretName, "secret-name", "", "NAMESPACE/NAME: print the bundle as this Secret")
	return command
}

func (m bundleMake) run() error {
	namespace, name, ok := strings.Cut(m.secretName, "/")
	switch {
	case m.config == "":
		return usagef("not given: --config, the file with the EncryptionConfiguration")
	case (m.folder == "") == (m.secretName == ""):
		return usagef("give one of --folder and --secret-name: where the bundle goes")
	case (m.after == "") == (m.revision == 0):
		return usagef("give one of --revision, from 1 on, and --after")
	case m.secretName != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/")):
		return usagef("flag --secret-name is %q: it is NAMESPACE/NAME", m.secretName)
	}
	draft, err := m.draft()
	if err != nil {
		return err
	}
	b, err := bundle.New(draft)
	if err != nil {
		return m.ofBundle(err)
	}
	if m.secretName != "" {
		text, err := b.MarshalSecret(namespace, name)
		if err == nil {
			_, err = m.out.Write(text)
		}
		return err
	}
	if err := b.WriteFolder(m.folder); err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.out, "%s: revision %d, %s, %s\n", m.folder, b.Revision(), hashed.Short(b.Hash()), pluginsOf(b))
	return err
}

// draft is what the flags name, read.
func (m bundleMake) draft() (d bundle.Draft, err error) {
	if d.Revision, d.Salt, err = m.following(); err != nil {
		return d, err
	}
	if d.EncryptionConfig, err = readLimited(m.config, m.in, config.MaxSize); err != nil {
		return d, err
	}
	parts := map[bundle.Part][]byte{}
	if err := m.readParts(bundle.Secret, "secret", m.secrets, parts); err != nil {
		return d, err
	}
	if err := m.readParts(bundle.ConfigMap, "configmap", m.configMaps, parts); err != nil {
		return d, err
	}
	unused := map[bundle.Part]bool{}
	for part := range parts {
		unused[part] = true
	}
	for _, flag := range m.plugins {
		p, err := m.plugin(flag, parts)
		if err != nil {
			return d, err
		}
		for part := range p.Parts {
			delete(unused, part)
		}
		d.Plugins = append(d.Plugins, p)
	}
	for part := range unused {
		return d, usagef("%s is given, and no plugin names it", part)
	}
	return d, nil
}

// following are the revision and the salt of a bundle after another, or of a first one.
func (m bundleMake) following() (uint64, []byte, error) {
	if m.after == "" {
		salt := make([]byte, 32)
		_, err := rand.Read(salt)
		return m.revision, salt, err
	}
	former, err := m.readBundle(m.after)
	if err != nil {
		return 0, nil, fmt.Errorf("flag --after: %w", err)
	}
	return former.Revision() + 1, former.Salt(), nil
}

// plugin reads KEYID=FILE, and takes what the settings name.
func (m bundleMake) plugin(flag string, parts map[bundle.Part][]byte) (bundle.DraftPlugin, error) {
	p := bundle.DraftPlugin{Parts: map[bundle.Part][]byte{}}
	digits, path, ok := strings.Cut(flag, "=")
	if !ok || path == "" {
		return p, usagef("flag --plugin is %q: it is KEYID=FILE", flag)
	}
	var err error
	if p.KeyID, err = bundle.ParseKeyID(digits); err != nil {
		return p, usagef("flag --plugin: %w", err)
	}
	if p.Settings, err = readLimited(path, m.in, maxPartFile); err != nil {
		return p, err
	}
	settings, err := bundle.ParseSettings(p.Settings)
	if err != nil {
		return p, badf("plugin %s, %s: %s", p.KeyID, path, printable(err.Error()))
	}
	for _, part := range settings.Parts() {
		if content, given := parts[part]; given {
			p.Parts[part] = content
		}
	}
	return p, nil
}

// readParts reads NAME/KEY=FILE. What a flag of another form holds is not shown: it may be
// a credential.
func (m bundleMake) readParts(source bundle.Source, flag string, given []string, into map[bundle.Part][]byte) error {
	for _, text := range given {
		of, path, ok := strings.Cut(text, "=")
		name, key, both := strings.Cut(of, "/")
		if !ok || !both || name == "" || key == "" || path == "" {
			return usagef("flag --%s is NAME/KEY=FILE, with the path of a file that holds it", flag)
		}
		part := bundle.Part{Source: source, Name: name, Key: key}
		if _, twice := into[part]; twice {
			return usagef("flag --%s: %s is given twice", flag, part)
		}
		content, err := readLimited(path, m.in, maxPartFile)
		if away := new(fs.PathError); errors.As(err, &away) {
			err = fmt.Errorf("%w: give the path of a file that holds it", away.Err)
		}
		if err != nil {
			return fmt.Errorf("flag --%s: %s: %w", flag, part, err)
		}
		into[part] = content
	}
	return nil
}
