package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

// program names the real Vault, as it does for tests. A fake would say nothing of a Vault.
const program = "ATREST_VAULT"

// openVault starts a Vault, with a key and a token that may use it and nothing else.
func openVault(ctx context.Context, folder string) (kmsplugin.Backend, kmsplugin.Config, func(), error) {
	if os.Getenv(program) == "" {
		return nil, kmsplugin.Config{}, nil, leftOut(program + " names no Vault: GOWORK=off go -C kmsplugin/vault/realvault build -o /tmp/realvault . && export " + program + "=/tmp/realvault")
	}
	v, err := startVault(os.Getenv(program))
	if err != nil {
		return nil, kmsplugin.Config{}, nil, err
	}
	config := vault.Config{
		Address: v.Address, InsecureHTTP: true, Mount: "transit", Key: "kek",
		Auth: vault.Auth{TokenFile: folder + "/token"},
	}
	transit, err := v.newTransit(ctx, config)
	if err != nil {
		v.end()
		return nil, kmsplugin.Config{}, nil, err
	}
	return transit, transit.Config(), v.end, nil
}

// realVault is a Vault that is a process, and what it says when it is there.
type realVault struct {
	Address, Token string
	end            func()
}

func startVault(program string) (*realVault, error) {
	command := exec.Command(program)
	hold, err := command.StdinPipe() // it ends when this does
	if err != nil {
		return nil, err
	}
	says, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	v := &realVault{end: func() { hold.Close(); _ = command.Wait() }}
	line, err := bufio.NewReader(says).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		v.end()
		return nil, fmt.Errorf("%s does not start: %w", program, err)
	}
	return v, nil
}

// newTransit makes a key as the config has it, and writes a token into its file.
func (v *realVault) newTransit(ctx context.Context, config vault.Config) (*vault.Transit, error) {
	rules, err := vault.Policy(config)
	if err != nil {
		return nil, err
	}
	var made struct {
		Auth struct {
			Token string `json:"client_token"`
		}
	}
	for _, request := range []struct {
		path   string
		body   map[string]any
		answer any
	}{
		{"sys/mounts/" + config.Mount, map[string]any{"type": "transit"}, nil},
		{config.Mount + "/keys/" + config.Key, map[string]any{"type": "aes256-gcm96"}, nil},
		{"sys/policies/acl/plugin", map[string]any{"policy": rules}, nil},
		{"auth/token/create", map[string]any{"policies": []string{"plugin"}}, &made},
	} {
		if err := v.write(ctx, request.path, request.body, request.answer); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(config.Auth.TokenFile, []byte(made.Auth.Token), 0o600); err != nil {
		return nil, err
	}
	return vault.New(config)
}

// write is a request as root. An answer that nobody asks for is left.
func (v *realVault) write(ctx context.Context, path string, body map[string]any, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, v.Address+"/v1/"+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("X-Vault-Token", v.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s: Vault answers %s", path, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
