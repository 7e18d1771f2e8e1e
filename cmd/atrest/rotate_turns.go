package main

import (
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/operate/rollout"
)

// turnFlags say which apiserver has its turn first, and how one is restarted that does not
// follow its file.
type turnFlags struct {
	first   string
	program string
	timeout time.Duration

	flags *pflag.FlagSet
}

const turnsHelp = `

An apiserver without --encryption-provider-config-automatic-reload, which it tells,
has its file in effect after its next start. --restart-hook PROGRAM does that: when the
file was written, PROGRAM restart NAME is run, with ATREST_APISERVER, ATREST_HOST and
ATREST_SHA256 in its environment, for one apiserver at a time, and for the next one when
that is ready, by its /readyz, and has its file in effect, and while every other one is
ready. So it is after this command was killed, too. It is run once more for the same
apiserver, and for no other, after --retry-after, if that answers as it was before.
Without it the restart is waited for.`

func (f *turnFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.first, "first", "", "apiserver that gets a changed configuration before the others; default the first by name")
	flags.StringVar(&f.program, "restart-hook", "", "program that restarts an apiserver which does not follow its file: PROGRAM restart NAME")
	flags.DurationVar(&f.timeout, "restart-timeout", rollout.DefaultRestartTimeout, "how long one call of the program of --restart-hook may take")
}

// among is an error if the one that is to be first is none of the apiservers.
func (f *turnFlags) among(apiservers []string) error {
	if f.first != "" && !slices.Contains(apiservers, f.first) {
		return usagef("flag --first is %q, which is none of the apiservers: they are %s", f.first, strings.Join(apiservers, ", "))
	}
	return nil
}

func (f *turnFlags) check() error {
	if f.flags == nil { // of a rotation that changes no file
		return nil
	}
	if f.program == "" {
		if f.flags.Changed("restart-timeout") {
			return usagef("flag --restart-timeout needs --restart-hook, which it is for")
		}
		return nil
	}
	if f.timeout <= 0 {
		return usagef("flag --restart-timeout is %s: it has to be over 0", f.timeout)
	}
	if _, err := exec.LookPath(f.program); err != nil {
		return usagef("flag --restart-hook: %w", err)
	}
	return nil
}

// hook is the program, or nil.
func (f *turnFlags) hook(s streams) *rollout.RestartHook {
	if f.program == "" {
		return nil
	}
	return &rollout.RestartHook{Program: f.program, Timeout: f.timeout, Err: s.err}
}
