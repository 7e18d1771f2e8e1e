package keyfile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// The plugin inside another process, such as an apiserver or a test.
func Example() {
	folder, err := os.MkdirTemp("", "kms")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	file := keyfile.At(filepath.Join(folder, "kek.json"))
	if _, err := file.Create(ctx); err != nil && !errors.Is(err, fs.ErrExist) {
		fmt.Println(err)
		return
	}
	keeper, err := kmsplugin.NewKeeper(file, keyfile.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := kmsplugin.Listen(ctx, "unix://"+filepath.Join(folder, "kms.sock"), keeper)
	if err != nil {
		fmt.Println(err)
		return
	}
	stopKeeper := keeper.Start(ctx)
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx) }()

	_, err = file.Rotate(ctx)
	fmt.Println("another version wraps within a second; error:", err)
	stop()
	fmt.Println("ended; errors:", <-ended, stopKeeper())
	// Output:
	// another version wraps within a second; error: <nil>
	// ended; errors: <nil> <nil>
}

// Two nodes have the same keys: a new one is on both before one of them wraps with it.
func ExampleFile_Stage() {
	folder, err := os.MkdirTemp("", "kms")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	one, two := keyfile.At(filepath.Join(folder, "one")), keyfile.At(filepath.Join(folder, "two"))
	_, err = one.Create(ctx)
	_, err2 := two.Import(ctx, one.Path())
	staged, err3 := one.Stage(ctx)
	_, err4 := two.Import(ctx, one.Path())
	if err := errors.Join(err, err2, err3, err4); err != nil {
		fmt.Println(err)
		return
	}
	for _, node := range []*keyfile.File{one, two} {
		info, err := node.Activate(ctx, staged.ID)
		switch {
		case errors.Is(err, keyfile.ErrBusy):
			fmt.Println("another process is changing it: once more later")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("it writes:", info.Writes)
		}
	}
	// Output:
	// it writes: true
	// it writes: true
}
