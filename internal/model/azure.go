package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/forebayhq/forebay"
)

const (
	defaultAzureAPIVersion = "2024-10-21"
	azureScope             = "https://cognitiveservices.azure.com/.default"
	// A token is renewed this long before it expires. If that fails, it is used until it expires.
	tokenRefreshBefore = 5 * time.Minute
	tokenRetryInterval = 30 * time.Second
)

// AzureConfig configures one Azure OpenAI deployment.
type AzureConfig struct {
	Endpoint   string // https://NAME.openai.azure.com
	Deployment string
	APIVersion string         // default 2024-10-21; "v1" for the versionless API
	APIKey     forebay.Secret // either a key
	EntraID    bool           // or Microsoft Entra ID, by DefaultAzureCredential
	Credential azcore.TokenCredential
	Responses  bool // as in OpenAIConfig
	HTTPConfig
}

// NewAzure returns a provider for one Azure OpenAI deployment. It uses OpenAI's protocol with
// Azure's URLs and credentials.
func NewAzure(c AzureConfig) (Provider, error) {
	if c.Endpoint == "" {
		return nil, errors.New("endpoint: required")
	}
	if c.Deployment == "" {
		return nil, errors.New("deployment: required")
	}
	base, err := baseURL(c.Endpoint)
	if err != nil {
		return nil, err
	}
	if strings.Contains(base, "/deployments/") {
		return nil, errors.New("endpoint: give the resource's address, without /openai/deployments/…")
	}
	base = strings.TrimSuffix(base, "/openai")
	if err := checkKey(c.APIKey); err != nil {
		return nil, err
	}
	entra := c.EntraID || c.Credential != nil
	if entra == (c.APIKey != "") {
		return nil, errors.New("api_key, entra_id: exactly one of them is required")
	}
	if c.APIVersion == "" {
		c.APIVersion = defaultAzureAPIVersion
	}

	header := map[string]string{}
	if c.APIKey != "" {
		header["api-key"] = c.APIKey.Reveal()
	}
	p := &openAI{endpoint: newEndpoint(c.HTTPConfig, c.APIKey, header), model: c.Deployment, ofDeployment: true, responses: c.Responses}
	p.knowThinking(c.HTTPConfig)
	p.completionTokens.Store(true)
	p.url = azureURLs(base, c.Deployment, c.APIVersion)
	p.chatURL, p.embedURL = p.url(pathChat), p.url(pathEmbeddings)
	if entra {
		if c.Credential == nil {
			if c.Credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
				return nil, fmt.Errorf("entra_id: %w", err)
			}
		}
		p.authorize = newBearer(c.Credential).authorize
	}
	return p, nil
}

// azureURLs returns the address of each part of the API. Responses and moderations are not below
// the deployment: their body names it. Nor is the list of models.
func azureURLs(base, deployment, version string) func(path string) string {
	if version == "v1" {
		return func(path string) string { return base + "/openai/v1/" + path }
	}
	query := "?" + url.Values{"api-version": {version}}.Encode()
	return func(path string) string {
		if path == pathResponses || path == pathCompact || path == pathModerations || path == pathModels {
			return base + "/openai/" + path + query
		}
		return base + "/openai/deployments/" + url.PathEscape(deployment) + "/" + path + query
	}
}

// bearer keeps one Entra ID token for all calls. One call fetches the token while the others wait,
// each no longer than its own ctx.
type bearer struct {
	credential azcore.TokenCredential
	turn       chan struct{} // a mutex with a context, for the fields below
	token      azcore.AccessToken
	refreshAt  time.Time
}

func newBearer(c azcore.TokenCredential) *bearer {
	b := &bearer{credential: c, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

func (b *bearer) authorize(ctx context.Context, h http.Header) error {
	token, err := b.get(ctx)
	if err != nil {
		return err
	}
	h.Set("Authorization", "Bearer "+token)
	return nil
}

func (b *bearer) get(ctx context.Context) (string, error) {
	select {
	case <-b.turn:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { b.turn <- struct{}{} }()

	now := time.Now()
	if now.Before(b.refreshAt) {
		return b.token.Token, nil
	}
	token, err := b.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{azureScope}})
	if err != nil {
		if b.token.Token != "" && now.Add(tokenRetryInterval).Before(b.token.ExpiresOn) {
			b.refreshAt = now.Add(tokenRetryInterval)
			return b.token.Token, nil
		}
		return "", credentialError(err)
	}
	b.token = token
	b.refreshAt = token.ExpiresOn.Add(-tokenRefreshBefore)
	if !token.RefreshOn.IsZero() && token.RefreshOn.Before(b.refreshAt) {
		b.refreshAt = token.RefreshOn
	}
	return token.Token, nil
}

// credentialError classifies a failure to get a token. Its text names tenants and files, so it is
// only for the log.
func credentialError(err error) error {
	var refused *azidentity.AuthenticationFailedError
	if errors.As(err, &refused) && refused.RawResponse != nil {
		if s := refused.RawResponse.StatusCode; s == 400 || s == 401 || s == 403 {
			return &forebay.TaskError{Class: forebay.ClassPermanent, Code: CodeUnauthorized,
				Message: "Entra ID refused the credential", Err: errors.Join(&failure{status: http.StatusUnauthorized}, err)}
		}
	}
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeNoCredential,
		Message: "no token from Entra ID", Err: err}
}
