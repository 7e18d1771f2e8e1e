package wholefile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ofContent are the attributes that vouch for a content, and are wrong for any
// other.
var ofContent = []string{"security.ima", "security.evm"}

// keepAttributes gives a file the extended attributes of another, access control
// list and label among them, and no more.
func keepAttributes(next, old string) error {
	has, wants, err := attributesOfBoth(next, old)
	if err != nil {
		return err
	}
	for name := range has {
		if _, ok := wants[name]; !ok {
			if err := unix.Removexattr(next, name); err != nil {
				return attributeError(name, err)
			}
		}
	}
	for name, value := range wants {
		if slices.Contains(ofContent, name) {
			return attributeError(name, errors.New("vouches for the content, and has to be made anew"))
		}
		if had, ok := has[name]; ok && bytes.Equal(had, value) {
			continue
		}
		if err := unix.Setxattr(next, name, value, 0); err != nil {
			return attributeError(name, err)
		}
	}
	return nil
}

// sameAttributes tells if two files differ in an extended attribute.
func sameAttributes(next, old string) error {
	has, wants, err := attributesOfBoth(next, old)
	if err != nil {
		return err
	}
	if !maps.EqualFunc(has, wants, bytes.Equal) {
		return errors.New("an extended attribute is not kept as it was set")
	}
	return nil
}

func attributesOfBoth(next, old string) (has, wants map[string][]byte, err error) {
	if has, err = attributesOf(next); err != nil {
		return nil, nil, err
	}
	wants, err = attributesOf(old)
	return has, wants, err
}

// attributesOf are the extended attributes of a file that this process may see.
func attributesOf(path string) (map[string][]byte, error) {
	names, err := whole(func(b []byte) (int, error) { return unix.Listxattr(path, b) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("extended attributes: %w", err)
	}
	all := map[string][]byte{}
	for name := range strings.SplitSeq(strings.Trim(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		if all[name], err = whole(func(b []byte) (int, error) { return unix.Getxattr(path, name, b) }); err != nil {
			return nil, attributeError(name, err)
		}
	}
	return all, nil
}

// maxAttribute is the most that Linux gives for one value, or for all names.
const maxAttribute = 64 << 10

func whole(read func([]byte) (int, error)) ([]byte, error) {
	b := make([]byte, maxAttribute)
	n, err := read(b)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}

func attributeError(name string, err error) error {
	return fmt.Errorf("extended attribute %q cannot be kept: %w", name, err)
}

// isFrozen reports whether a file or folder was made immutable, or one that is
// only added to.
func isFrozen(path string) bool {
	var is unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &is)
	return err == nil && is.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0
}
