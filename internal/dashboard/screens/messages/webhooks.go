package messages

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// webhookView is a webhook with its state in a word.
type webhookView struct{ forebay.Webhook }

// State is the state of the webhook: enabled, failing, paused or disabled.
func (w webhookView) State() string {
	switch {
	case w.DisabledAt != nil:
		return "disabled"
	case w.PausedUntil != nil && w.PausedUntil.After(time.Now()):
		return "paused"
	case w.FailingSince != nil:
		return "failing"
	}
	return "enabled"
}

// Why says why the webhook gets nothing, in a sentence; "": it does.
func (w webhookView) Why() string {
	switch {
	case w.DisabledAt == nil:
		if w.State() == "paused" {
			return "The endpoint asked for a pause, or has failed five times in a row."
		}
		return ""
	case w.DisabledReason == forebay.WebhookGone:
		return "It answered 410, which says that it is gone for good."
	case w.DisabledReason == forebay.WebhookFailing:
		return "Nothing was delivered for five days."
	case w.DisabledReason == forebay.WebhookSubscriptionDeleted:
		return "Its subscription to the events was deleted."
	}
	return "Somebody disabled it."
}

type webhooksData struct {
	Webhooks []webhookView
	Form     webhookForm
	Problem  string
}

// EventTypes are all that a webhook may choose from.
func (webhooksData) EventTypes() []forebay.EventType { return forebay.EventTypes }

// webhookForm is a webhook as somebody types it.
type webhookForm struct {
	Name, URL, Concurrency string
	Types                  []string
}

// Has reports whether a type of events is chosen.
func (f webhookForm) Has(t forebay.EventType) bool { return slices.Contains(f.Types, string(t)) }

func (f webhookForm) settings() (s forebay.WebhookSettings, err error) {
	s.URL = f.URL
	for _, t := range f.Types {
		s.EventTypes = append(s.EventTypes, forebay.EventType(t))
	}
	if f.Concurrency != "" {
		if s.Concurrency, err = strconv.Atoi(f.Concurrency); err != nil {
			err = forebay.Invalid("concurrency", "must be a whole number")
		}
	}
	return s, err
}

// listWebhooks answers GET /webhooks.
func listWebhooks(r *kit.Request) error { return webhooksPage(r, webhookForm{}, "", 0) }

func webhooksPage(r *kit.Request, form webhookForm, problem string, status int) error {
	found, err := kit.Fetch[forebay.Page[forebay.Webhook]](r, "/v1/webhooks", nil)
	if err != nil {
		return err
	}
	data := webhooksData{Form: form, Problem: problem}
	for _, w := range found.Items {
		data.Webhooks = append(data.Webhooks, webhookView{w})
	}
	return pages.Render(r, "webhooks", kit.Page{Title: "Webhooks", Section: "/webhooks", Data: data, Status: status, Still: status != 0, Commands: []string{"forebay webhooks list"}})
}

// createWebhook answers POST /webhooks. Its answer shows the secret, and nothing else ever does.
func createWebhook(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	form := webhookForm{strings.TrimSpace(values.Get("name")), strings.TrimSpace(values.Get("url")), strings.TrimSpace(values.Get("concurrency")), values["event_types"]}
	settings, err := form.settings()
	var made forebay.Webhook
	if err == nil {
		made, err = r.Client.CreateWebhook(r.Context(), forebay.NewWebhook{Name: form.Name, WebhookSettings: settings})
	}
	if status, problem, ok := refused(err); ok {
		return webhooksPage(r, form, problem, status)
	}
	if err != nil {
		return err
	}
	return secretPage(r, made, "The webhook "+made.Name+" is made.")
}

type secretData struct {
	Webhook forebay.Webhook
	Text    string
}

// secretPage shows a new secret, once. It stands on this page alone.
func secretPage(r *kit.Request, w forebay.Webhook, text string) error {
	return pages.Render(r, "secret", kit.Page{Title: "Secret of the webhook " + w.Name, Section: "/webhooks", Data: secretData{w, text}, Still: true})
}

type webhookData struct {
	Webhook webhookView
	Tries   []forebay.WebhookTry
	Dead    forebay.Page[forebay.WebhookDeadLetter]
	Problem string
}

// Outcome is how a try ended, as a badge shows it.
func (webhookData) Outcome(s string) string { return strings.ReplaceAll(s, "_", "-") }

// showWebhook answers GET /webhooks/{webhook}.
func showWebhook(r *kit.Request) error { return webhookPage(r, "", 0) }

func webhookPage(r *kit.Request, problem string, status int) error {
	name := r.PathValue("webhook")
	base := "/v1" + kit.Path("webhooks", name)
	w, err := kit.Fetch[forebay.Webhook](r, base, nil)
	if err != nil {
		return err
	}
	tries, err := kit.Fetch[forebay.Page[forebay.WebhookTry]](r, base+"/tries", nil)
	if err != nil {
		return err
	}
	dead, err := kit.Fetch[forebay.Page[forebay.WebhookDeadLetter]](r, base+"/dead-letters", kit.Values("limit", "50", "cursor", r.Query("cursor")))
	if err != nil {
		return err
	}
	return pages.Render(r, "webhook", kit.Page{Title: "Webhook " + name, Section: "/webhooks", Data: webhookData{webhookView{w}, tries.Items, dead, problem}, Status: status, Still: status != 0,
		Commands: []string{"forebay webhooks show " + name, "forebay webhooks tries " + name, "forebay webhooks dead-letters " + name}})
}

// testWebhook answers POST /webhooks/{webhook}/test.
func testWebhook(r *kit.Request) error {
	name := r.PathValue("webhook")
	try, err := r.Client.TestWebhook(r.Context(), name)
	if err != nil {
		return err
	}
	text := "The test event was delivered"
	if try.Outcome != forebay.WebhookDelivered {
		text = "The test event was not delivered: " + try.Failure
		if try.Detail != "" {
			text += ", " + try.Detail
		}
	}
	if try.Status != 0 {
		text += ", status " + strconv.Itoa(try.Status)
	}
	return r.Done(kit.Path("webhooks", name), text+", after "+kit.Duration(time.Duration(try.DurationSeconds*float64(time.Second)))+".")
}

// redeliver answers POST /webhooks/{webhook}/redeliver.
func redeliver(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	name := r.PathValue("webhook")
	req := forebay.RedeliverRequest{All: form.Get("all") != ""}
	if !req.All {
		for _, text := range form["number"] {
			number, err := numberOf(text)
			if err != nil {
				return err
			}
			req.SequenceNumbers = append(req.SequenceNumbers, number)
		}
		if len(req.SequenceNumbers) == 0 {
			return r.Done(kit.Path("webhooks", name), "No event was selected.")
		}
	}
	report, err := r.Client.Redeliver(r.Context(), name, req)
	if err != nil {
		return err
	}
	return r.Done(kit.Path("webhooks", name), kit.Plural(report.Redelivered, "event")+" will be delivered again.")
}

// enableWebhook answers POST /webhooks/{webhook}/enable.
func enableWebhook(r *kit.Request) error { return setDisabled(r, false) }

// disableWebhook answers POST /webhooks/{webhook}/disable.
func disableWebhook(r *kit.Request) error { return setDisabled(r, true) }

// setDisabled changes nothing else of a webhook. It does nothing if somebody else has changed the
// webhook since the page was shown.
func setDisabled(r *kit.Request, disabled bool) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	name, version := r.PathValue("webhook"), kit.ReadVersion(form)
	w, err := r.Client.Webhook(r.Context(), name)
	if err != nil {
		return err
	}
	_, err = r.Client.UpdateWebhook(r.On(version), name, forebay.WebhookSettings{URL: w.URL, EventTypes: w.EventTypes, Concurrency: w.Concurrency, Disabled: disabled})
	if kit.Changed(err) {
		now, fetching := r.Client.Webhook(r.Context(), name)
		if fetching != nil {
			return fetching
		}
		status, problem, _ := version.Again(err, webhookView{now}.Version())
		return webhookPage(r, problem, status)
	}
	if err != nil {
		return err
	}
	notice := "The webhook " + name + " is enabled."
	if disabled {
		notice = "The webhook " + name + " is disabled. What it has waits, for up to four days."
	}
	return r.Done(kit.Path("webhooks", name), notice)
}

// Version is what the page shows of a webhook, for a form to say what it has seen.
func (w webhookView) Version() kit.Version {
	types := make([]string, len(w.EventTypes))
	for i, t := range w.EventTypes {
		types[i] = string(t)
	}
	return kit.VersionOf(w.ETag, kit.Value{Name: "address", Text: w.URL}, kit.Value{Name: "events", Text: strings.Join(types, " ")},
		kit.Value{Name: "deliveries at once", Text: strconv.Itoa(w.Concurrency)}, kit.Value{Name: "disabled", Text: kit.Switch(w.DisabledAt != nil)})
}

// confirmRotate answers GET /webhooks/{webhook}/rotate.
func confirmRotate(r *kit.Request) error { return rotatePage(r, "24", "", 0) }

type rotateData struct {
	forebay.Webhook
	Overlap string // field of the form
	Problem string
}

func rotatePage(r *kit.Request, overlap, problem string, status int) error {
	name := r.PathValue("webhook")
	w, err := kit.Fetch[forebay.Webhook](r, "/v1"+kit.Path("webhooks", name), nil)
	if err != nil {
		return err
	}
	return pages.Render(r, "rotate", kit.Page{Title: "Rotate the secret of " + name, Section: "/webhooks", Data: rotateData{w, overlap, problem}, Status: status, Still: true,
		Commands: []string{"forebay webhooks rotate " + name}})
}

// rotate answers POST /webhooks/{webhook}/rotate.
func rotate(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	req, err := rotateRequest(form)
	if err != nil {
		return err
	}
	name := r.PathValue("webhook")
	w, err := r.Client.RotateWebhookSecret(r.On(kit.ReadVersion(form)), name, req)
	if kit.Changed(err) {
		return rotatePage(r, form.Get("overlap_hours"), "Somebody has changed the webhook, or rotated its secret, since this page was shown. Nothing was changed.", http.StatusConflict)
	}
	if err != nil {
		return err
	}
	return secretPage(r, w, "The webhook "+name+" has another secret.")
}

func rotateRequest(form url.Values) (req forebay.RotateSecretRequest, err error) {
	text := strings.TrimSpace(form.Get("overlap_hours"))
	if text == "" {
		return req, nil
	}
	hours, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return req, forebay.Invalid("overlap_hours", "must be a number of hours")
	}
	req.OverlapHours = &hours
	return req, nil
}

// confirmDeleteWebhook answers GET /webhooks/{webhook}/delete.
func confirmDeleteWebhook(r *kit.Request) error { return deleteWebhookPage(r, "", 0) }

func deleteWebhookPage(r *kit.Request, problem string, status int) error {
	name := r.PathValue("webhook")
	w, err := kit.Fetch[forebay.Webhook](r, "/v1"+kit.Path("webhooks", name), nil)
	if err != nil {
		return err
	}
	return pages.Render(r, "confirm", kit.Page{Title: "Delete the webhook " + name, Section: "/webhooks", Still: true, Status: status, Data: confirmation{
		Text: kit.Plural(w.Pending, "event") + " that wait for it and " + kit.Plural(w.DeadLetters, "dead letter") + " go with it.",
		Type: name, Action: kit.Path("webhooks", name, "delete"), Button: "Delete the webhook", Back: kit.Path("webhooks", name), Problem: problem, Scope: "operate",
		Hidden: map[string]string{"etag": w.ETag},
	}, Commands: []string{"forebay webhooks delete " + name}})
}

// deleteWebhook answers POST /webhooks/{webhook}/delete.
func deleteWebhook(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	name := r.PathValue("webhook")
	if problem := typed(form.Get("confirm"), name); problem != "" {
		return deleteWebhookPage(r, problem, http.StatusUnprocessableEntity)
	}
	err = r.Client.DeleteWebhook(r.On(kit.ReadVersion(form)), name)
	if kit.Changed(err) {
		return deleteWebhookPage(r, deleteChanged("webhook"), http.StatusConflict)
	}
	if err != nil {
		return err
	}
	return r.Done("/webhooks", "The webhook "+name+" is deleted.")
}
