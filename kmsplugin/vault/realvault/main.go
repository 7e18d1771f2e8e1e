// Command realvault serves a real Vault for tests, in memory, with what Transit and the ways
// to log in need and no more. It is never shipped: Vault has the Business Source Licence,
// which is why this is a module of its own that nothing else requires.
//
// It listens on a loopback address, initialises and unseals itself, and prints one line of
// JSON: {"address", "token", "unsealKeys"}. Then it reads lines from its standard input and
// answers each by printing it once it is done: "down" closes the listener and all
// connections, "up" opens the same address again. It ends when its input ends, or at
// SIGTERM.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "loopback address to listen on")
	certificate := flag.String("tls-cert", "", "file with the certificate; without one it is http")
	key := flag.String("tls-key", "", "file with the certificate's key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *certificate, *key); err != nil {
		fmt.Fprintln(os.Stderr, "realvault:", err)
		os.Exit(1)
	}
}

// greeting is what a test has to know.
type greeting struct {
	Address    string   `json:"address"`
	Token      string   `json:"token"`
	UnsealKeys []string `json:"unsealKeys"`
}

func run(ctx context.Context, listen, certificate, key string) error {
	core, token, unsealKey, err := unsealed(ctx)
	if err != nil {
		return err
	}
	defer core.Shutdown()
	d, err := newDoor(listen, certificate, key, handler(core))
	if err != nil {
		return err
	}
	if err := d.up(); err != nil {
		return err
	}
	defer d.down()
	if err := json.NewEncoder(os.Stdout).Encode(greeting{Address: d.url(), Token: token, UnsealKeys: []string{unsealKey}}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- obey(os.Stdin, d) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return err
}

// obey does what the lines say, and tells when it has.
func obey(lines io.Reader, d *door) error {
	for scanner := bufio.NewScanner(lines); scanner.Scan(); {
		var err error
		switch line := scanner.Text(); line {
		case "down":
			err = d.down()
		case "up":
			err = d.up()
		default:
			err = fmt.Errorf("line %q: it has to be down or up", line)
		}
		if err != nil {
			return err
		}
		fmt.Println(scanner.Text())
	}
	return nil
}
