package messages

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// maxRounds bounds the calls of the API that one act makes.
const maxRounds = 10

// deadFilter reads which dead letters are meant: one, those with a reason, or all.
func deadFilter(v url.Values) (f forebay.DeadMessageFilter, what string, err error) {
	if number := v.Get("number"); number != "" {
		n, err := numberOf(number)
		return forebay.DeadMessageFilter{SequenceNumbers: []int64{n}}, "the dead letter " + number, err
	}
	f.MaxMessages = forebay.MaxDeadMessagesPerCall
	if reason := v.Get("reason"); reason != "" {
		f.Reason = reason
		return f, "dead letters with the reason " + reason, nil
	}
	f.All = true
	return f, "all dead letters", nil
}

// hidden are the values of a form that say which dead letters are meant.
func hidden(v url.Values) map[string]string {
	h := map[string]string{}
	for _, name := range []string{"number", "reason", "tab"} {
		if value := v.Get(name); value != "" {
			h[name] = value
		}
	}
	return h
}

func many(n int, more bool) string {
	if more {
		return kit.Plural(n, "message") + " at least"
	}
	return kit.Plural(n, "message")
}

// confirmRedrive answers GET …/redrive. It counts what would be sent back, and changes nothing.
func confirmRedrive(r *kit.Request) error {
	e, query := entityOf(r), r.URL.Query()
	f, what, err := deadFilter(query)
	if err != nil {
		return err
	}
	f.DryRun = true
	report, err := r.Client.Messages(e.subqueue(true)).Redrive(r.Context(), forebay.RedriveMessagesRequest{DeadMessageFilter: f})
	if err != nil {
		return err
	}
	return pages.Render(r, "confirm", kit.Page{Title: "Redrive " + what, Section: e.section(), Still: true, Data: confirmation{
		Text: fmt.Sprintf("%s of %s will go back to where they came from, each with a new sequence number and no deliveries counted. Locked and deferred ones stay.",
			many(report.Redriven, report.More), e.Name),
		Action: e.Page("redrive"), Button: "Redrive", Back: tabOf(e.Page(), true), Hidden: hidden(query), Scope: "operate",
	}, Commands: []string{"forebay messages redrive " + kit.Shell(e.Name) + " " + deadFlags(query)}})
}

func deadFlags(v url.Values) string {
	switch {
	case v.Get("number") != "":
		return kit.Shell(v.Get("number"))
	case v.Get("reason") != "":
		return "--reason " + kit.Shell(v.Get("reason"))
	}
	return "--all"
}

// redrive answers POST …/redrive.
func redrive(r *kit.Request) error {
	e := entityOf(r)
	form, err := r.Form()
	if err != nil {
		return err
	}
	f, _, err := deadFilter(form)
	if err != nil {
		return err
	}
	done, more := 0, true
	for round := 0; more && round < maxRounds; round++ {
		report, err := r.Client.Messages(e.subqueue(true)).Redrive(r.Context(), forebay.RedriveMessagesRequest{DeadMessageFilter: f})
		if err != nil {
			return partly(err, done, "redriven")
		}
		done += report.Redriven
		more, f.UpTo = report.More, report.UpTo
	}
	return r.Done(tabOf(e.Page(), true), ended(done, more, "redriven"))
}

func ended(done int, more bool, word string) string {
	text := kit.Plural(done, "message") + " " + word + "."
	if more {
		text += " There are more: do it again."
	}
	return text
}

// partly says what was done before an error.
func partly(err error, done int, word string) error {
	if done == 0 {
		return err
	}
	return forebay.Errorf(forebay.CodeOf(err), "%s %s; then: %s", kit.Plural(done, "message"), word, kit.Explain(err))
}

// confirmPurge answers GET …/purge, for dead letters or for active messages.
func confirmPurge(r *kit.Request) error { return purgePage(r, r.URL.Query(), "", 0) }

func purgePage(r *kit.Request, v url.Values, problem string, status int) error {
	e := entityOf(r)
	c := confirmation{Type: e.Name, Action: e.Page("purge"), Button: "Remove for good", Back: tabOf(e.Page(), v.Get("tab") == deadTab), Problem: problem, Hidden: hidden(v), Scope: "operate"}
	if v.Get("tab") != deadTab {
		c.Text = "All active messages of " + e.Name + " that are there now will be removed for good. Locked, deferred and scheduled ones stay, and so do its dead letters."
		return pages.Render(r, "confirm", kit.Page{Title: "Purge " + e.Name, Section: e.section(), Data: c, Still: true, Status: status,
			Commands: []string{"forebay messages delete " + kit.Shell(e.Name) + " --all"}})
	}
	f, what, err := deadFilter(v)
	if err != nil {
		return err
	}
	f.DryRun = true
	report, err := r.Client.Messages(e.subqueue(true)).PurgeDead(r.Context(), f)
	if err != nil {
		return err
	}
	c.Text = fmt.Sprintf("%s of the dead letters of %s will be removed for good. Locked and deferred ones stay.", many(report.Purged, report.More), e.Name)
	return pages.Render(r, "confirm", kit.Page{Title: "Purge " + what, Section: e.section(), Data: c, Still: true, Status: status,
		Commands: []string{"forebay messages purge " + kit.Shell(e.Name) + " " + deadFlags(v)}})
}

// purge answers POST …/purge.
func purge(r *kit.Request) error {
	e := entityOf(r)
	form, err := r.Form()
	if err != nil {
		return err
	}
	if problem := typed(form.Get("confirm"), e.Name); problem != "" {
		return purgePage(r, form, problem, http.StatusUnprocessableEntity)
	}
	if form.Get("tab") != deadTab {
		return purgeActive(r, e)
	}
	f, _, err := deadFilter(form)
	if err != nil {
		return err
	}
	done, more := 0, true
	for round := 0; more && round < maxRounds; round++ {
		report, err := r.Client.Messages(e.subqueue(true)).PurgeDead(r.Context(), f)
		if err != nil {
			return partly(err, done, "removed")
		}
		done += report.Purged
		more, f.UpTo = report.More, report.UpTo
	}
	return r.Done(tabOf(e.Page(), true), ended(done, more, "removed"))
}

func purgeActive(r *kit.Request, e entity) error {
	before := time.Now()
	done, more := 0, true
	for round := 0; more && round < maxRounds; round++ {
		n, err := r.Client.Messages(e.Name).DeleteBefore(r.Context(), forebay.DeleteMessagesRequest{Before: before})
		if err != nil {
			return partly(err, done, "removed")
		}
		done += n
		more = n == forebay.MaxBatchDelete
	}
	return r.Done(e.Page(), ended(done, more, "removed"))
}
