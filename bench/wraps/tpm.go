package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

// openTPM starts a TPM, and seals a key under it.
func openTPM(ctx context.Context, folder string) (kmsplugin.Backend, kmsplugin.Config, func(), error) {
	if _, err := exec.LookPath("swtpm"); err != nil {
		return nil, kmsplugin.Config{}, nil, leftOut("there is no swtpm: apt-get install swtpm")
	}
	device := folder + "/tpm.sock"
	end, err := startTPM(folder, device)
	if err != nil {
		return nil, kmsplugin.Config{}, nil, err
	}
	store, err := tpm.New(tpm.Config{Device: device, File: folder + "/keys.json"})
	if err == nil {
		_, _, err = store.Create(ctx, false)
	}
	if err != nil {
		end()
		return nil, kmsplugin.Config{}, nil, err
	}
	return store, tpm.KeeperConfig(), end, nil
}

// startTPM starts swtpm with its state in a folder, and waits until it answers.
func startTPM(folder, socket string) (end func(), err error) {
	command := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+folder,
		"--server", "type=unixio,path="+socket, "--ctrl", "type=unixio,path="+socket+".ctrl", "--flags", "startup-clear")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	for {
		if connection, err := net.Dial("unix", socket); err == nil {
			return func() { _ = command.Process.Kill(); <-ended }, connection.Close()
		}
		select {
		case <-ended:
			return nil, fmt.Errorf("swtpm ended: %s", said.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
