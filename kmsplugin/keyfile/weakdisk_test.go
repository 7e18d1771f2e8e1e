package keyfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"github.com/stretchr/testify/require"
)

// A weakDisk is a folder of the real file system that can lose its power: it
// knows what would be left. That is the content that was synced, under the
// names that were there when the folder was synced. Before each step it asks.
type weakDisk struct {
	t       *testing.T
	folder  string
	content map[uint64][]byte // of a file, by its inode
	names   map[string]uint64
	before  func(step string) error // the error of a step that is to fail
	steps   []string
	open    int // files
}

// onWeakDisk is a key file at a path whose folder is empty and nothing else.
func onWeakDisk(t *testing.T) (*File, *weakDisk) {
	disk := &weakDisk{t: t, folder: t.TempDir()}
	disk.before = func(string) error { return nil }
	disk.forget()
	file := At(filepath.Join(disk.folder, "kek.json"))
	file.disk.Files = disk
	return file, disk
}

// fail has every step of a name fail from now on, or none.
func (d *weakDisk) fail(name string) {
	d.before = func(step string) error {
		if step == name {
			return errBroken
		}
		return nil
	}
}

// put has somebody copy a file to path, who does not sync it.
func (d *weakDisk) put(path string, data []byte) {
	d.t.Helper()
	d.forget()
	require.NoError(d.t, os.WriteFile(path+".copy", data, 0o600))
	require.NoError(d.t, os.Rename(path+".copy", path))
}

// forget makes everything in the folder something that was never synced.
func (d *weakDisk) forget() { d.content, d.names = map[uint64][]byte{}, map[string]uint64{} }

func (d *weakDisk) step(format string, args ...any) error {
	step := fmt.Sprintf(format, args...)
	d.steps = append(d.steps, step)
	return d.before(step)
}

// left is what a power cut leaves at path, whether or not the system wrote the
// folder by itself just before. Each must be nothing at all or a whole file.
func (d *weakDisk) left(path string) (certain []byte, possible [][]byte) {
	d.t.Helper()
	if inode, ok := d.names[filepath.Base(path)]; ok {
		certain = d.content[inode]
		possible = append(possible, certain)
	}
	if info, err := os.Lstat(path); err == nil {
		possible = append(possible, d.content[inodeOf(info)])
	}
	return certain, possible
}

func inodeOf(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

func (d *weakDisk) OpenFile(name string, flag int, mode fs.FileMode) (keptfile.Opened, error) {
	if err := d.step("open %s", filepath.Base(name)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	if flag&os.O_CREATE != 0 {
		info, err := file.Stat()
		require.NoError(d.t, err)
		delete(d.content, inodeOf(info)) // of a file that is gone
	}
	d.open++
	return &weakFile{file, d}, nil
}

func (d *weakDisk) Link(from, to string) error {
	if err := d.step("link"); err != nil {
		return err
	}
	return os.Link(from, to)
}

func (d *weakDisk) Rename(from, to string) error {
	if err := d.step("rename"); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (d *weakDisk) Remove(name string) error {
	if err := d.step("remove"); err != nil {
		return err
	}
	return os.Remove(name)
}

func (d *weakDisk) SyncAll(string) error { return d.step("sync all") }

type weakFile struct {
	*os.File
	disk *weakDisk
}

func (f *weakFile) step(what string) error {
	return f.disk.step("%s %s", what, filepath.Base(f.Name()))
}

func (f *weakFile) Write(data []byte) (int, error) {
	if err := f.step("write"); err != nil {
		n, _ := f.File.Write(data[:len(data)/2])
		return n, err
	}
	return f.File.Write(data)
}

func (f *weakFile) Chmod(mode fs.FileMode) error {
	if err := f.step("chmod"); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

func (f *weakFile) Stat() (fs.FileInfo, error) {
	if err := f.step("stat"); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *weakFile) Read(into []byte) (int, error) {
	if err := f.step("read"); err != nil {
		return 0, err
	}
	return f.File.Read(into)
}

func (f *weakFile) Close() error {
	f.disk.open--
	return errors.Join(f.step("close"), f.File.Close())
}

func (f *weakFile) Sync() error {
	if err := f.step("sync"); err != nil {
		return err
	}
	info, err := f.File.Stat()
	require.NoError(f.disk.t, err)
	if !info.IsDir() {
		data, err := os.ReadFile(f.Name())
		require.NoError(f.disk.t, err)
		f.disk.content[inodeOf(info)] = data
		return nil
	}
	f.disk.names = map[string]uint64{}
	entries, err := os.ReadDir(f.disk.folder)
	require.NoError(f.disk.t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(f.disk.t, err)
		f.disk.names[entry.Name()] = inodeOf(info)
	}
	return nil
}
