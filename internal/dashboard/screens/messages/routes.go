package messages

import (
	"embed"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

// Routes are the pages about messages.
func Routes() []kit.Route {
	routes := []kit.Route{
		kit.Get("/queues", listQueues),
		kit.Get("/queues/{queue}", showQueue),
		kit.Post("/queues/{queue}/pause", pauseQueue),
		kit.Post("/queues/{queue}/resume", resumeQueue),
		kit.Post("/queues/{queue}/send", send),

		kit.Get("/topics", listTopics),
		kit.Get("/topics/{topic}", showTopic),
		kit.Get("/topics/{topic}/test", testRules),
		kit.Post("/topics/{topic}/publish", publish),
		kit.Post("/topics/{topic}/status", changeState),
		kit.Post("/topics/{topic}/cancel", cancelPublished),
		kit.Get("/topics/{topic}/subscriptions/{subscription}", showSubscription),
		kit.Post("/topics/{topic}/subscriptions/{subscription}/rules", addRule),
		kit.Get("/topics/{topic}/subscriptions/{subscription}/rules/{rule}/remove", confirmRemoveRule),
		kit.Post("/topics/{topic}/subscriptions/{subscription}/rules/{rule}/remove", removeRule),

		kit.Get("/dead-letters/messages", listDeadGroups),
		kit.Get("/sessions", listSessions),
		kit.Post("/sessions/release", releaseSession),

		kit.Get("/webhooks", listWebhooks),
		kit.Post("/webhooks", createWebhook),
		kit.Get("/webhooks/{webhook}", showWebhook),
		kit.Post("/webhooks/{webhook}/test", testWebhook),
		kit.Post("/webhooks/{webhook}/redeliver", redeliver),
		kit.Post("/webhooks/{webhook}/enable", enableWebhook),
		kit.Post("/webhooks/{webhook}/disable", disableWebhook),
		kit.Get("/webhooks/{webhook}/rotate", confirmRotate),
		kit.Post("/webhooks/{webhook}/rotate", rotate),
		kit.Get("/webhooks/{webhook}/delete", confirmDeleteWebhook),
		kit.Post("/webhooks/{webhook}/delete", deleteWebhook),
	}
	for _, base := range []string{"/queues/{queue}", "/topics/{topic}/subscriptions/{subscription}"} {
		routes = append(routes,
			kit.Get(base+"/messages/{number}", showMessage),
			kit.Post(base+"/messages/{number}", mend),
			kit.Post(base+"/messages/{number}/cancel", cancelScheduled),
			kit.Post(base+"/receive", receive),
			kit.Post(base+"/status", changeState),
			kit.Post(base+"/settle", settle),
			kit.Get(base+"/redrive", confirmRedrive),
			kit.Post(base+"/redrive", redrive),
			kit.Get(base+"/purge", confirmPurge),
			kit.Post(base+"/purge", purge),
		)
	}
	routes = append(routes, entityRoutes()...)
	for i, route := range routes {
		routes[i].Handle = func(r *kit.Request) error { return missing(route.Handle(r)) }
	}
	return routes
}

// missing turns an unknown queue in the address of a page into a page that is not there.
func missing(err error) error {
	if forebay.CodeOf(err) == forebay.CodeUnknownQueue {
		return forebay.Errorf(forebay.CodeNotFound, "there is no such queue or subscription")
	}
	return err
}

// confirmation is a page that asks for a name to be typed before something is lost for good.
type confirmation struct {
	Text    string
	Type    string // what must be typed; "": nothing
	Action  string // path that the form is sent to
	Button  string
	Back    string // path
	Problem string
	Hidden  map[string]string
	Scope   string // that the act needs
}

// typed returns what is wrong with a confirmation, or "".
func typed(got, want string) string {
	if got == want {
		return ""
	}
	return "Type " + want + " to confirm. Nothing was changed."
}
