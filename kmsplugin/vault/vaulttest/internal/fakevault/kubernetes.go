package fakevault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// kubernetes logs in service accounts, and asks an apiserver whether the token is one's.
type kubernetes struct {
	host, reviewer string
	roles          map[string]*kubernetesRole
}

type kubernetesRole struct {
	grant
	names, namespaces []string
	audience          string
}

func (*kubernetes) kind() string { return "kubernetes" }

func (e *kubernetes) answer(v *Vault, q *request) answer {
	if q.rest == "login" {
		return e.login(v, q)
	}
	name, isRole := strings.CutPrefix(q.rest, "role/")
	switch {
	case q.operation != "update":
		return unsupported()
	case q.rest == "config":
		q.body.ignore("disable_local_ca_jwt")
		e.host, e.reviewer = q.body.text("kubernetes_host"), q.body.text("token_reviewer_jwt")
		return done()
	case !isRole:
		return missing()
	}
	q.body.ignore("alias_name_source")
	e.roles[name] = &kubernetesRole{
		grant: q.body.grant(), names: q.body.list("bound_service_account_names"),
		namespaces: q.body.list("bound_service_account_namespaces"), audience: q.body.text("audience"),
	}
	return done()
}

func (e *kubernetes) login(v *Vault, q *request) answer {
	name, text := q.body.text("role"), q.body.text("jwt")
	role := e.roles[name]
	switch {
	case name == "":
		return invalid("missing role")
	case text == "":
		return invalid("missing jwt")
	case role == nil:
		return invalid(fmt.Sprintf("invalid role name %q", name))
	}
	c, _, _, err := claimsOf(text)
	account, namespace := c.Pod.Account, c.Pod.Namespace
	switch {
	case err != nil:
		return denied()
	case role.audience != "" && !slices.Contains(c.audiences(), role.audience):
		return failed(http.StatusForbidden, "invalid audience (aud) claim: audience claim does not match any expected audience")
	case !oneOf(role.names, account.Name):
		return failed(http.StatusForbidden, "service account name not authorized")
	case !oneOf(role.namespaces, namespace):
		return failed(http.StatusForbidden, "namespace not authorized")
	case !e.review(text, role):
		return denied()
	}
	return v.login(q, role.grant, namespace+"-"+account.Name, map[string]string{
		"role": name, "service_account_name": account.Name, "service_account_namespace": namespace, "service_account_secret_name": "", "service_account_uid": account.UID,
	})
}

func oneOf(names []string, name string) bool {
	return slices.Contains(names, "*") || slices.Contains(names, name)
}

// review asks the apiserver about a token.
func (e *kubernetes) review(text string, role *kubernetesRole) bool {
	spec := map[string]any{"token": text}
	if role.audience != "" {
		spec["audiences"] = []string{role.audience}
	}
	asked, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec})
	if err != nil {
		return false
	}
	request, err := http.NewRequest(http.MethodPost, e.host+"/apis/authentication.k8s.io/v1/tokenreviews", bytes.NewReader(asked))
	if err != nil {
		return false
	}
	bearer := text
	if e.reviewer != "" {
		bearer = e.reviewer
	}
	request.Header.Set("Authorization", "Bearer "+bearer)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var review struct {
		Status struct {
			Authenticated bool `json:"authenticated"`
		} `json:"status"`
	}
	return json.NewDecoder(response.Body).Decode(&review) == nil && review.Status.Authenticated
}
