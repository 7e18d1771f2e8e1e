package bundle

import (
	"path"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
)

// maxSocket is the longest path of a socket: sun_path of Linux, less the NUL.
const maxSocket = 107

// matchSockets notes each socket of the configuration that no plugin listens on, and each
// plugin that nothing dials. It gives the folder that the sockets are in.
func matchSockets(c *config.Configuration, plugins []*Plugin, found *problems) string {
	folder := ""
	seen := map[KeyID]config.KMS{}
	for _, provider := range c.Providers() {
		if !provider.Kind().IsKMS() {
			continue
		}
		id, dir, ok := socketOf(provider, found)
		if !ok {
			continue
		}
		if folder == "" {
			folder = dir
		}
		if dir != folder {
			found.addf("%s: its socket is in %.128q, and others are in %.128q: a node has all of them in one folder", provider, dir, folder)
		}
		if other, again := seen[id]; again && other.Timeout != provider.KMS().Timeout {
			found.addf("%s: its timeout is %s, and %q has %s on the same socket: give both the same", provider, provider.KMS().Timeout, other.Name, other.Timeout)
		}
		seen[id] = provider.KMS()
		if !slices.ContainsFunc(plugins, func(p *Plugin) bool { return p.id == id }) {
			found.addf("%s: no plugin of the bundle has the keyID %s: add %s%s, or take the provider away", provider, id, settingsPrefix, id)
		}
	}
	for _, p := range plugins {
		if _, dialled := seen[p.id]; !dialled {
			found.addf("plugin %s: no provider of the configuration has the socket %s: take the plugin away, or name the socket", p.id, p.id.Socket())
		}
	}
	return folder
}

// socketOf is the keyID and the folder of a provider's socket.
func socketOf(provider *config.Provider, found *problems) (id KeyID, folder string, ok bool) {
	address := provider.KMS().Address
	switch {
	case provider.Kind() != config.KMSv2:
		found.addf("%s: a plugin of a bundle speaks KMS v2: write apiVersion: v2", provider)
	case strings.HasPrefix(address, "@"), !path.IsAbs(address), path.Clean(address) != address:
		found.addf("%s: its socket %.128q is no absolute path: write unix:///FOLDER/kms-KEYID.sock", provider, address)
	case len(address) > maxSocket:
		found.addf("%s: its socket's path has %d bytes, and the kernel takes %d: choose a shorter folder", provider, len(address), maxSocket)
	default:
		id, err := ParseSocket(path.Base(address))
		if err != nil {
			found.addf("%s: %w", provider, err)
			return 0, "", false
		}
		return id, path.Dir(address), true
	}
	return 0, "", false
}
