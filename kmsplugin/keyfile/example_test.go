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
	plugin, err := file.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := kmsplugin.Listen(ctx, "unix://"+filepath.Join(folder, "kms.sock"), plugin)
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx) }()

	info, err := plugin.Rotate(ctx)
	fmt.Println("version", info.Version, "wraps now; error:", err)
	stop()
	fmt.Println("ended; error:", <-ended)
	// Output:
	// version 2 wraps now; error: <nil>
	// ended; error: <nil>
}

// A key file is rotated, and what is in the way of that told apart.
func ExampleFile_Rotate() {
	folder, err := os.MkdirTemp("", "kms")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	file := keyfile.At(filepath.Join(folder, "kek.json"))
	if _, err := file.Create(ctx); err != nil {
		fmt.Println(err)
		return
	}
	info, err := file.Rotate(ctx)
	switch {
	case errors.Is(err, keyfile.ErrBusy):
		fmt.Println("another process is changing it: once more later")
	case errors.Is(err, keyfile.ErrFull):
		fmt.Println("time for another file, and another provider")
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println("version", info.Version, "wraps now")
	}
	// Output:
	// version 2 wraps now
}
