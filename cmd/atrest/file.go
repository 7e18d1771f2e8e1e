package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kube-atrest/atrest/config"
)

// readLimited reads a file, or standard input for "-", of at most limit bytes
// and one more, which is enough to see that it is too long.
func readLimited(path string, in io.Reader, limit int64) ([]byte, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", nameOf(path), err)
	}
	return data, nil
}

func nameOf(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// readConfig reads and checks an EncryptionConfiguration. The error is a
// *config.Error if the file is there and cannot be used.
func readConfig(path string, in io.Reader, o config.Options) (*config.Configuration, error) {
	data, err := readLimited(path, in, config.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("encryption configuration: %w", err)
	}
	o.File = nameOf(path)
	return config.Parse(data, o)
}

// readAny is readConfig for what may be in use anywhere: KMS v1 included.
func readAny(path string, in io.Reader) (*config.Configuration, error) {
	return readConfig(path, in, config.Options{KMSv1: true})
}

// problemsOf are all that is wrong with a file, nil for any other error.
func problemsOf(err error) []error {
	var refused *config.Error
	if errors.As(err, &refused) {
		return refused.Problems
	}
	return nil
}
