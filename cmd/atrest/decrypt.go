package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
)

type decryptCommand struct {
	streams
	source   sourceFlags
	config   string
	key      string
	resource string
	print    bool
}

const decryptHelp = `Write the plain bytes of one stored object to standard output, for recovery:
when no apiserver runs, or none can read it.

The stored value comes from FILE, from standard input (-), from etcd (--etcd or
--endpoints) or from a --snapshot, as one of them. It is opened with the
providers that --config has for its resource, and if none of them has its key,
with those of any other resource, and with each key and plugin of its kind whatever
that is called. The etcd key is needed in any case, as kms and
aesgcm values open nowhere else than where they were stored.

What comes out is what the apiserver stored: JSON, which begins with {, or
protobuf, which begins with k8s and a zero byte.

It holds the object's secrets, so it is not written to a terminal unless
--print-to-terminal says so.

Exit codes:
  0  decrypted
  1  the value does not open: as the error says
  2  not tried: wrong flags, or FILE, etcd, the snapshot or the configuration
     cannot be read`

func newDecrypt(s streams) *cobra.Command {
	d := &decryptCommand{streams: s}
	command := &cobra.Command{
		Use:   "decrypt --config FILE --key ETCD_KEY [FILE|-]",
		Short: "Write the plain bytes of one stored object, for recovery",
		Long:  decryptHelp,
		Example: `  atrest decrypt --config encryption.yaml --key /registry/secrets/default/db --etcd \
    --cacert ca.crt --cert client.crt --tls-key client.key > db
  atrest decrypt --config encryption.yaml --key /registry/secrets/default/db --snapshot backup.db > db
  etcdctl get --print-value-only /registry/secrets/default/db | \
    atrest decrypt --config encryption.yaml --key /registry/secrets/default/db - > db`,
		RunE: func(command *cobra.Command, args []string) error { return d.run(command.Context(), args) },
	}
	flags := command.Flags()
	flags.StringVar(&d.config, "config", "", "the encryption configuration with the keys (required)")
	flags.StringVar(&d.key, "key", "", "the etcd key of the object, such as /registry/secrets/default/db (required)")
	flags.StringVar(&d.resource, "resource", "", "whose providers to open with; default: that of the etcd key")
	flags.BoolVar(&d.print, "print-to-terminal", false, "write to a terminal too")
	d.source.addSwitch(flags)
	d.source.add(flags, "tls-key")
	return command
}

func (d *decryptCommand) run(ctx context.Context, args []string) error {
	if err := d.check(args); err != nil {
		return err
	}
	layout, err := d.source.layout()
	if err != nil {
		return err
	}
	c, err := readAny(d.config, d.in)
	if err != nil {
		return err
	}
	value, err := d.read(ctx, args)
	if err != nil {
		return err
	}
	resource, _ := layout.Resource(d.key)
	if d.resource != "" {
		resource = schema.ParseGroupResource(d.resource)
		if err := named(layout, c, resource); err != nil {
			return err
		}
	}
	opener, err := audit.NewOpener(c)
	if err != nil {
		return err
	}
	defer opener.Close()
	plaintext, err := d.open(ctx, opener, resource, value)
	if err != nil {
		return err
	}
	_, err = d.out.Write(plaintext)
	return err
}

func (d *decryptCommand) check(args []string) error {
	switch {
	case d.config == "":
		return usagef("flag --config is missing: name the encryption configuration with the keys")
	case d.key == "":
		return usagef("flag --key is missing: name the etcd key, such as /registry/secrets/default/db")
	case len(args) > 1:
		return usagef("unexpected argument %q: one value at a time", args[1])
	case len(args) == 1 && d.source.wanted():
		return usagef("the value is to come from %s and from etcd or a snapshot: name one", nameOf(args[0]))
	case len(args) == 0 && !d.source.wanted():
		return usagef("where is the value? name a file, - for standard input, --etcd or --snapshot")
	case len(args) == 1 && args[0] == "-" && d.config == "-":
		return usagef("the value and the configuration are both -: standard input can be one of them")
	case !d.print && isTerminal(d.out):
		return usagef("standard output is a terminal, where secrets do not belong: send it to a file, or say --print-to-terminal")
	}
	return nil
}

// maxStored is larger than what etcd takes, in bytes.
const maxStored = 64 << 20

func (d *decryptCommand) read(ctx context.Context, args []string) ([]byte, error) {
	if len(args) == 0 {
		from, err := d.source.open(ctx)
		if err != nil {
			return nil, err
		}
		defer from.Close()
		found, err := from.Find(ctx, d.key)
		return found.Value, err
	}
	value, err := readLimited(args[0], d.in, maxStored)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the stored value: %w", err)
	case len(value) == 0:
		return nil, fmt.Errorf("the stored value: %s is empty: is the etcd key right?", nameOf(args[0]))
	case len(value) > maxStored:
		return nil, fmt.Errorf("the stored value: %s is longer than any value of etcd: give one value as it is stored", nameOf(args[0]))
	}
	return value, nil
}

// open opens the value, or what is left of it without a newline at its end,
// which etcdctl get --print-value-only adds.
func (d *decryptCommand) open(ctx context.Context, opener *audit.Opener, r schema.GroupResource, value []byte) ([]byte, error) {
	forms := [][]byte{value}
	if cut, ok := bytes.CutSuffix(value, []byte("\n")); ok {
		if forms = append(forms, cut); audit.Inspect(value, nil).Form.Kind == audit.Undecodable {
			forms = forms[1:] // it is nothing of kms with it
		}
	}
	var failed []error
	for _, open := range []func(context.Context, *audit.Opener, schema.GroupResource, []byte) ([]byte, error){d.openExact, d.otherwise} {
		var first error
		for _, form := range forms {
			plaintext, err := open(ctx, opener, r, form)
			if err == nil {
				return plaintext, nil
			}
			first = cmp.Or(first, err)
		}
		failed = append(failed, first)
	}
	d.warn("nor does each key and plugin of its kind open it: %s", printable(strings.ReplaceAll(failed[1].Error(), "\n", "; ")))
	return nil, badf("%v", failed[0])
}

func (d *decryptCommand) openExact(ctx context.Context, opener *audit.Opener, r schema.GroupResource, value []byte) ([]byte, error) {
	switch i := audit.Inspect(value, nil); {
	case i.Form.Kind == audit.Plaintext:
		d.warn("the value is stored in plaintext")
		return value, nil
	case i.Form.Kind == audit.Unknown:
		return nil, fmt.Errorf("the stored value %w", i.Problem)
	}
	plaintext, with, err := opener.Recover(ctx, r, audit.Object{Key: d.key, Value: value})
	if err == nil && with != r {
		d.warn("opened with the providers of %s: apiservers cannot read it so, as those of %s did not open it", wildcard(with), r)
	}
	return plaintext, err
}

// otherwise opens a value with what has another name now, or stands behind another one of its name.
func (d *decryptCommand) otherwise(ctx context.Context, opener *audit.Opener, r schema.GroupResource, value []byte) ([]byte, error) {
	plaintext, as, err := opener.ByItself(ctx, r, audit.Object{Key: d.key, Value: value})
	if err == nil && as != "" {
		d.warn("opened with what is called %s now: apiservers cannot read it so, as that is not the name that it is stored under, or not the first of it", printable(strconv.Quote(as)))
		return plaintext, nil
	}
	return nil, cmp.Or(err, errors.New("nothing else is of its kind"))
}
