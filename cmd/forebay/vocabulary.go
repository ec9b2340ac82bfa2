package main

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/server"
)

// words is the vocabulary of this command line.
var words = command.Vocabulary{
	Samples: map[string]string{
		"JOB_ID": "job_0123456789abcdefghjkmnpqrs", "QUEUE": "mail", "SEQUENCE_NUMBER": "4711", "TASK": "chat",
		"LOCK_TOKEN": "AAAAAAAAAAFb2V0aGluZyBlbHNl", "SESSION_TOKEN": "AAAAAAAAAAFb2V0aGluZyBlbHNl",
		"TOPIC": "orders", "SUBSCRIPTION": "large", "RULE": "big", "INSTANCE": "order-4711", "DOCUMENT": "notes",
		"WEBHOOK": "billing", "TENANT": "acme", "DEPLOYMENT": "east", "KEY_ID": "key_0123456789abcdefghjkmnpqrs",
		"SIGN_IN_ID": "signin_0123456789abcdef0123456789abcdef", "RESPONSE": "resp_0123456789abcdefghjkmnpqrs",
	},
	FormerFlags: map[string]string{
		"created-after": "after", "created-before": "before",
		"delete-when-idle": "auto-delete-on-idle", "session": "require-session",
	},
	Lists: map[string]string{
		"DEPLOYMENT": "deployments list", "DOCUMENT": "documents list", "INSTANCE": "orchestrations list",
		"JOB_ID": "jobs list", "QUEUE": "queues list", "RULE": "rules list", "RESPONSE": "response list", "SIGN_IN_ID": "sign-ins list",
		"SUBSCRIPTION": "subscriptions list", "TASK": "tasks list", "TENANT": "tenants list",
		"TOPIC": "topics list", "WEBHOOK": "webhooks list",
	},
	FlagArguments: map[string]string{"job": "JOB_ID", "queue": "QUEUE", "task": "TASK", "tenant": "TENANT"},
	FlagChoices: map[string][]string{
		"mode":    command.Texts([]forebay.SearchMode{forebay.SearchHybrid, forebay.SearchVector, forebay.SearchKeyword}),
		"role":    {server.RoleAll, server.RoleAPI, server.RoleWorker, server.RoleRetryWorker},
		"scopes":  command.Texts(forebay.Scopes),
		"kind":    command.Texts(modelsim.Kinds),
		"headers": command.Texts(modelsim.HeaderKinds),
	},
	FileFlags: []string{"ca-cert", "config", "emulator", "faults", "file", "log", "output", "set-body-file", "set-input-file", "source-ca"},
}
