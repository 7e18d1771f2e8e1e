package vault

import (
	"fmt"
	"strings"
)

// Policy is a policy of Vault with the rights that a plugin of this config needs, and none
// beyond. It is for the namespace of the login. Of the config it takes what names the key, and
// whether the token is that of a file.
func Policy(config Config) (string, error) {
	c, err := config.checkedKey()
	if err != nil {
		return "", err
	}
	within := ""
	if c.Namespace != c.AuthNamespace {
		below, ok := strings.CutPrefix(c.Namespace, c.AuthNamespace)
		if !ok || c.AuthNamespace != "" && !strings.HasPrefix(below, "/") {
			return "", fmt.Errorf("vault: the namespace %q of the key is not below %q, that of the login: no token of that has any right here: log in at the same one, or above", c.Namespace, c.AuthNamespace)
		}
		within = strings.Trim(below, "/") + "/"
	}
	var text strings.Builder
	allow := func(why, path, capability string) {
		fmt.Fprintf(&text, "# %s\npath %q {\n  capabilities = [%q]\n}\n\n", why, path, capability)
	}
	at := func(verb string) string { return within + c.Mount + "/" + verb + "/" + c.Key }
	allow("See the versions of the key.", at("keys"), "read")
	allow("Wrap DEKs. Not \"create\": that would make a key where none is.", at("encrypt"), "update")
	allow("Unwrap them.", at("decrypt"), "update")
	text.WriteString("# What follows is in Vault's policy \"default\", too, and is needed by a token without that.\n\n")
	allow("See how long the token lasts, and whether it is good.", "auth/token/lookup-self", "read")
	allow("Renew it.", "auth/token/renew-self", "update")
	if c.Auth.TokenFile == "" {
		allow("End it when another one takes its place.", "auth/token/revoke-self", "update")
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
