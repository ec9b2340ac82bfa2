package config

import (
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// The default models of the providers that are configured by their own variables.
const (
	openAIChat      = "gpt-4o-mini"
	openAIEmbedding = "text-embedding-3-small"
	anthropicChat   = "claude-haiku-5-5"
)

// pickUp makes deployments for the providers whose own variables are set, if no deployments are
// configured. They serve the models chat and embedding, in the order OpenAI, Azure OpenAI,
// Anthropic.
func pickUp(o *server.Options, environ []string) (notes []string) {
	if len(o.Deployments) > 0 {
		return nil
	}
	get := lookup(environ)
	models := map[string][]string{}
	add := func(model string, d server.Deployment) {
		o.Deployments = append(o.Deployments, d)
		models[model] = append(models[model], d.Name)
	}

	if key, base := get("OPENAI_API_KEY"), get("OPENAI_BASE_URL"); key != "" || base != "" {
		d := server.Deployment{Provider: server.ProviderOpenAI, Endpoint: base, APIKey: forebay.Secret(key)}
		d.Name, d.Model = "openai-chat", openAIChat
		add(server.ModelChat, d)
		d.Name, d.Model = "openai-embedding", openAIEmbedding
		add(server.ModelEmbedding, d)
		notes = append(notes, "no deployments are configured: OpenAI's API serves chat and embedding (OPENAI_API_KEY, OPENAI_BASE_URL)")
	}

	endpoint, deployment, embedding := get("AZURE_OPENAI_ENDPOINT"), get("AZURE_OPENAI_DEPLOYMENT"), get("AZURE_OPENAI_EMBEDDING_DEPLOYMENT")
	switch {
	case endpoint != "" && (deployment != "" || embedding != ""):
		d := server.Deployment{Provider: server.ProviderAzure, Endpoint: endpoint, APIKey: forebay.Secret(get("AZURE_OPENAI_API_KEY"))}
		d.EntraID = d.APIKey == ""
		if deployment != "" {
			d.Name, d.Deployment = "azure-chat", deployment
			add(server.ModelChat, d)
		}
		if embedding != "" {
			d.Name, d.Deployment = "azure-embedding", embedding
			add(server.ModelEmbedding, d)
		}
		notes = append(notes, "no deployments are configured: Azure OpenAI serves what its variables name (AZURE_OPENAI_ENDPOINT)")
	case endpoint != "":
		notes = append(notes, "AZURE_OPENAI_ENDPOINT is set but not used: AZURE_OPENAI_DEPLOYMENT is missing")
	}

	if key := get("ANTHROPIC_API_KEY"); key != "" {
		add(server.ModelChat, server.Deployment{Name: "anthropic-chat", Provider: server.ProviderAnthropic, Model: anthropicChat, APIKey: forebay.Secret(key)})
		notes = append(notes, "no deployments are configured: Anthropic's API serves chat (ANTHROPIC_API_KEY)")
	}

	if len(o.Deployments) == 0 {
		return notes
	}
	if len(o.Models) == 0 {
		o.Models = map[string]server.Model{}
		for model, deployments := range models {
			o.Models[model] = server.InOrder(deployments...)
		}
		for _, model := range []string{server.ModelChat, server.ModelEmbedding} {
			if models[model] == nil {
				notes = append(notes, "no deployment serves the model "+model+": tasks that need it are left out")
			}
		}
	}
	return notes
}

// lookup finds variables in a list like os.Environ's. The last entry of a name counts.
func lookup(environ []string) func(string) string {
	values := map[string]string{}
	for _, variable := range environ {
		if name, value, ok := strings.Cut(variable, "="); ok {
			values[name] = value
		}
	}
	return func(name string) string { return values[name] }
}
