package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// What the kernel keeps from other processes of the same user it gives to root.
func TestTheMemoryOfTheCommandIsItsOwn(t *testing.T) {
	folder := plugintest.Folder(t)
	serve := command(t, "keyfile", "serve", "--create", "--key-file", folder+"/kek.json", "--listen", "unix://"+folder+"/kms.sock")
	uid := os.Geteuid()
	if uid == 0 { // whose own processes are root's in any case
		uid = 65534
		serve.Path = filepath.Join(folder, "command")
		program, err := os.ReadFile(serve.Args[0])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(serve.Path, program, 0o755))
		require.NoError(t, os.Chown(folder, uid, uid))
		serve.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	p := startCommand(t, serve)
	for _, file := range []string{"mem", "maps", "environ"} {
		info, err := os.Stat(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, file))
		require.NoError(t, err)
		require.Zero(t, info.Sys().(*syscall.Stat_t).Uid, file)
	}
	require.NoError(t, p.end(syscall.SIGTERM))
}
