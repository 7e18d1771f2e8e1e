package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// kms serve|restart|stop|pid|create|rotate|recreate FOLDER is a plugin as a process of its own, on the
// socket kms.sock in the folder, with its key file beside it and its log in kms.log.
func kms() {
	verb, folder := os.Args[1], os.Args[2]
	if verb == "at" {
		serveAt(os.Args[2:])
		return
	}
	file := keyfile.At(filepath.Join(folder, "kek.json"))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch verb {
	case "serve":
		err = serveKMS(ctx, folder, file)
	case "restart":
		if err = stopKMS(folder); err == nil {
			err = startKMS(folder)
		}
	case "stop":
		err = stopKMS(folder)
	case "pid":
		var peer conformance.Peer
		peer, err = conformance.Serves(kmsEndpoint(folder))
		fmt.Println(peer.PID)
	case "create":
		_, err = file.Create(ctx)
	case "rotate":
		_, err = file.Rotate(ctx)
	case "recreate":
		if err = errors.Join(stopKMS(folder), os.Remove(file.Path())); err == nil {
			err = startKMS(folder)
		}
	default:
		err = fmt.Errorf("there is no %s of %s", verb, folder)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func kmsEndpoint(folder string) string {
	path, err := filepath.Abs(filepath.Join(folder, "kms.sock"))
	if err != nil {
		log.Fatal(err)
	}
	return "unix://" + path
}

func serveKMS(ctx context.Context, folder string, file *keyfile.File) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // nobody has to remember it
	defer cancel()
	if _, err := file.Create(ctx); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	keeper, err := kmsplugin.NewKeeper(file, kmsplugin.Config{Poll: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	server, err := kmsplugin.Listen(ctx, kmsEndpoint(folder), keeper)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "serving")
	stop := keeper.Start(context.WithoutCancel(ctx))
	return errors.Join(server.Serve(ctx), stop())
}

// startKMS returns when the plugin accepts connections. The one before may still be on its
// way out, so it is started again while it ends at once, as a supervisor does.
func startKMS(folder string) error {
	for range 100 {
		if err := startOnce(folder); !errors.Is(err, errEnded) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errEnded
}

var errEnded = errors.New("the plugin has ended: see its log")

func startOnce(folder string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(folder, "kms.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	command := exec.Command(program, "serve", folder)
	command.Args[0] = "kms" // by which the program knows what it is
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return err
	}
	served, ended := make(chan error, 1), make(chan struct{})
	go func() { served <- untilServed(folder, true) }()
	go func() { _ = command.Wait(); close(ended) }()
	select {
	case err := <-served:
		return err
	case <-ended:
		return errEnded
	}
}

// stopKMS returns when nobody listens any more.
func stopKMS(folder string) error {
	peer, err := conformance.Serves(kmsEndpoint(folder))
	if err != nil {
		return nil
	}
	if err := syscall.Kill(peer.PID, syscall.SIGTERM); err != nil {
		return err
	}
	return untilServed(folder, false)
}

func untilServed(folder string, served bool) error {
	for range 3000 {
		if _, err := conformance.Serves(kmsEndpoint(folder)); (err == nil) == served {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // it is another process, which tells nobody
	}
	return fmt.Errorf("half a minute later it is not so that somebody serves: %t", served)
}

// serveAt is kms at SOCKET FOLDER [sloppy] [PORT]: the plugin of a bundle, with its key file in a
// folder. A sloppy one loses newlines at the end; with a port it listens there too.
func serveAt(args []string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // nobody has to remember it
	defer cancel()
	file := keyfile.At(filepath.Join(args[1], "kek.json"))
	keeper, err := kmsplugin.NewKeeper(file, kmsplugin.Config{Poll: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	var service kmsplugin.Service = keeper
	for _, more := range args[2:] {
		if more == "sloppy" {
			service = sloppy{keeper}
			continue
		}
		port, err := net.Listen("tcp", "127.0.0.1:"+more)
		if err != nil {
			log.Fatal(err)
		}
		defer port.Close()
	}
	server, err := kmsplugin.Listen(ctx, "unix://"+args[0], service)
	if err != nil {
		log.Fatal(err)
	}
	wait := keeper.Start(context.WithoutCancel(ctx))
	if err := errors.Join(server.Serve(ctx), wait()); err != nil {
		log.Fatal(err)
	}
}

// sloppy loses newlines at the end, of which no random DEK has so many.
type sloppy struct{ *kmsplugin.Keeper }

func (s sloppy) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	plaintext, err := s.Keeper.Decrypt(ctx, uid, sealed)
	return bytes.TrimSuffix(plaintext, []byte("\n\n\n\n")), err
}
