package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// maxManifest bounds a manifest that is read, in bytes: anybody's may be in the folder.
const maxManifest = 1 << 20

// removeFormer removes the manifests that a node with the same folders made in a former boot of the machine,
// and whose instances went with its memory. No pod of such a one can run: what ran has ended
// with the machine, and the folder that it needs to be started again is not there.
func (r *Pods) removeFormer(s Spec, boot string) error {
	all, err := filepath.Glob(filepath.Join(r.Manifests, "kms-*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range all {
		former, err := readFormer(path)
		if err != nil {
			return err
		}
		if former.Folder == "" || former.Boot == boot || filepath.Dir(former.Folder) != filepath.Dir(s.Folder) {
			continue
		}
		if _, err := os.Lstat(former.Folder); !errors.Is(err, fs.ErrNotExist) {
			continue // it is found there as any other, or is not known to be gone
		}
		if err := errors.Join(removeManifest(path), clearSocket(former.Spec)); err != nil {
			return err
		}
	}
	return nil
}

// readFormer is what a manifest of a node tells. There is no folder in one that is somebody else's.
func readFormer(path string) (podOf, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return podOf{}, nil
	}
	if err != nil {
		return podOf{}, err
	}
	var pod corev1.Pod
	if len(text) > maxManifest || yaml.Unmarshal(text, &pod) != nil || pod.Labels[managedByLabel] != managedBy {
		return podOf{}, nil
	}
	a := pod.Annotations
	former := podOf{Boot: a[bootAnnotation], Spec: Spec{Folder: a[folderAnnotation], Socket: a[socketAnnotation]}}
	if !filepath.IsAbs(former.Folder) || !filepath.IsAbs(former.Socket) || filepath.Ext(former.Socket) != ".sock" {
		return podOf{}, nil
	}
	return former, nil
}
