package main

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/hashicorp/go-hclog"
	jwt "github.com/hashicorp/vault-plugin-auth-jwt"
	kubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/credential/cert"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

// unsealed is a new Vault that is initialised and unsealed, with its root token and the one
// key that unseals it.
func unsealed(ctx context.Context) (core *vault.Core, token, unsealKey string, err error) {
	logger := hclog.New(&hclog.LoggerOptions{Name: "vault", Level: hclog.Warn})
	storage, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return nil, "", "", err
	}
	core, err = vault.NewCore(&vault.CoreConfig{
		Physical:     storage,
		Logger:       logger,
		DisableMlock: true,
		LogicalBackends: map[string]logical.Factory{
			"kv": kv.Factory, "transit": transit.Factory,
		},
		CredentialBackends: map[string]logical.Factory{
			"approle": approle.Factory, "cert": cert.Factory, "jwt": jwt.Factory, "kubernetes": kubernetes.Factory,
		},
		BuiltinRegistry: noPlugins{},
	})
	if err != nil {
		return nil, "", "", err
	}
	made, err := core.Initialize(ctx, &vault.InitParams{
		BarrierConfig:  &vault.SealConfig{SecretShares: 1, SecretThreshold: 1},
		RecoveryConfig: &vault.SealConfig{},
	})
	if err != nil {
		return nil, "", "", err
	}
	share := made.SecretShares[0]
	unsealKey = base64.StdEncoding.EncodeToString(share) // before Unseal, which wipes it
	if _, err := core.Unseal(share); err != nil {
		return nil, "", "", err
	}
	return core, made.RootToken, unsealKey, nil
}

func handler(core *vault.Core) http.Handler {
	return vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{Type: "tcp"}})
}

// noPlugins has Vault look for none but the back ends that it is given.
type noPlugins struct{}

func (noPlugins) Contains(string, consts.PluginType) bool { return false }
func (noPlugins) Keys(consts.PluginType) []string         { return nil }
func (noPlugins) IsBuiltinEntPlugin(string, consts.PluginType) bool {
	return false
}
func (noPlugins) Get(string, consts.PluginType) (func() (any, error), bool) { return nil, false }
func (noPlugins) DeprecationStatus(string, consts.PluginType) (consts.DeprecationStatus, bool) {
	return 0, false
}
