package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// userFlags say who etcd is to take the command for. No flag takes a password: others
// on the machine see the arguments of a process.
type userFlags struct{ name, file string }

func (u *userFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&u.name, "user", "", "name of the user of etcd, where it has authentication; without the password")
	flags.StringVar(&u.file, "password-file", "", "file with the password of --user (default that of $ETCDCTL_PASSWORD)")
}

// read is the user, and what gives the password; both are empty if nobody is named.
// ETCDCTL_USER may have the password behind a colon, as it may for etcdctl.
func (u *userFlags) read() (name string, password func() (string, error), err error) {
	name, inUser, hasPassword := strings.Cut(os.Getenv("ETCDCTL_USER"), ":")
	switch {
	case strings.Contains(u.name, ":"):
		return "", nil, usagef("flag --user has a password behind the name, which others can see: name the user alone, and a file with the password by --password-file, " +
			"or set ETCDCTL_PASSWORD")
	case u.name != "":
		name, hasPassword = u.name, false
	}
	switch {
	case name == "" && u.file != "":
		return "", nil, usagef("flag --password-file: there is no user to it: name it with --user")
	case name == "":
		return "", nil, nil
	case u.file != "":
		known, err := passwordIn(u.file) // before anything begins
		if info, _ := os.Stat(u.file); info == nil || !info.Mode().IsRegular() {
			return name, func() (string, error) { return known, nil }, err // a pipe can be read once
		}
		return name, func() (string, error) { return passwordIn(u.file) }, err
	}
	known := os.Getenv("ETCDCTL_PASSWORD")
	if hasPassword {
		known = cmp.Or(known, inUser)
	}
	if known == "" {
		return "", nil, usagef("the user %q of etcd has no password here: name a file with it by --password-file, or set ETCDCTL_PASSWORD", name)
	}
	return name, func() (string, error) { return known, nil }, nil
}

// passwordIn reads a file, whose last line may end.
func passwordIn(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("password for etcd: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if password == "" || strings.ContainsAny(password, "\n\x00") {
		return "", fmt.Errorf("password for etcd: %s has to hold the password in one line, and nothing else", path)
	}
	return password, nil
}
