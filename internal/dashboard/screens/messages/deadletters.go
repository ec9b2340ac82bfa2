package messages

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// maxRounds bounds the calls of the API that one act makes.
const maxRounds = 10

// deadFilter reads which dead letters are meant: one, those with a reason, or all. What was sent
// after the page was shown is left out.
func deadFilter(v url.Values) (f forebay.DeadMessageFilter, what string, err error) {
	if number := v.Get("number"); number != "" {
		n, err := numberOf(number)
		return forebay.DeadMessageFilter{SequenceNumbers: []int64{n}}, "the dead letter " + number, err
	}
	f.MaxMessages = forebay.MaxDeadMessagesPerCall
	if upTo := v.Get("up_to"); upTo != "" {
		if f.UpTo, err = numberOf(upTo); err != nil {
			return f, "", forebay.Invalid("up_to", "must be a sequence number")
		}
	}
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
	for _, name := range []string{"number", "reason", "up_to", "first_at", "tab", "before"} {
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

// redriveData is a redrive of dead letters before it is carried out.
type redriveData struct {
	Entity  entity
	Report  forebay.RedrivenMessages // of a dry run
	Count   string                   // how many messages it is about
	Groups  []forebay.DeadMessageGroup
	One     bool // it is about one message
	Hidden  map[string]string
	Rate    string
	Max     string
	Problem string
}

// confirmRedrive answers GET …/redrive. It counts what would be sent back, and changes nothing.
func confirmRedrive(r *kit.Request) error { return redrivePage(r, r.URL.Query(), "") }

func redrivePage(r *kit.Request, v url.Values, problem string) error {
	e := entityOf(r)
	messages := r.Client.Messages(e.subqueue(true))
	groups, err := messages.DeadGroups(r.Context())
	if err != nil {
		return err
	}
	if v.Get("number") == "" && v.Get("up_to") == "" && groups.UpTo > 0 { // what is sent later was not looked at
		v.Set("up_to", strconv.FormatInt(groups.UpTo, 10))
	}
	f, what, err := deadFilter(v)
	if err != nil {
		return err
	}
	f.DryRun = true
	report, err := messages.Redrive(r.Context(), forebay.RedriveMessagesRequest{DeadMessageFilter: f})
	if err != nil {
		return err
	}
	d := redriveData{Entity: e, Report: report, Count: many(report.Redriven, report.More), One: v.Get("number") != "",
		Hidden: hidden(v), Rate: v.Get("rate"), Max: v.Get("max"), Problem: problem}
	for _, g := range groups.Groups {
		if !d.One && (f.Reason == "" || f.Reason == g.Reason) {
			d.Groups = append(d.Groups, g)
		}
	}
	page := kit.Page{Title: "Redrive " + what, Section: e.section(), Still: true, Data: d,
		Commands: []string{"forebay messages redrive " + kit.Shell(e.Name) + " " + deadFlags(v)}}
	if problem != "" {
		page.Status = http.StatusUnprocessableEntity
	}
	return pages.Render(r, "redrive", page)
}

// deadFlags are the arguments of the command that does the same.
func deadFlags(v url.Values) string {
	flags := "--all"
	switch {
	case v.Get("number") != "":
		return kit.Args(v.Get("number"))
	case v.Get("reason") != "":
		flags = "--reason " + kit.Shell(v.Get("reason"))
	}
	for _, flag := range [][2]string{{"up_to", " --up-to "}, {"rate", " --rate "}, {"max", " --max "}} {
		if value := v.Get(flag[0]); value != "" {
			flags += flag[1] + kit.Shell(value)
		}
	}
	return flags
}

// paceOf reads how fast, and how many at most, a form asks to redrive.
func paceOf(form url.Values) (rate float64, most int, err error) {
	if v := form.Get("rate"); v != "" {
		if rate, err = strconv.ParseFloat(v, 64); err != nil || !(rate > 0) {
			return 0, 0, forebay.Invalid("rate", "must be a number of messages each second")
		}
	}
	if v := form.Get("max"); v != "" {
		if most, err = strconv.Atoi(v); err != nil || most < 1 {
			return 0, 0, forebay.Invalid("max", "must be a number of messages")
		}
	}
	return rate, most, nil
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
	rate, most, err := paceOf(form)
	if err != nil {
		return redrivePage(r, form, kit.Explain(err))
	}
	req := forebay.RedriveMessagesRequest{DeadMessageFilter: f, RatePerSecond: rate}
	if v := form.Get("first_at"); v != "" && rate > 0 {
		at, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return forebay.Invalid("first_at", "must be a time")
		}
		req.FirstAt = &at
	}
	done, more := 0, true
	for round := 0; more && round < maxRounds && (most == 0 || done < most); round++ {
		if most > 0 {
			req.MaxMessages = min(forebay.MaxDeadMessagesPerCall, most-done)
		}
		report, err := r.Client.Messages(e.subqueue(true)).Redrive(r.Context(), req)
		if err != nil && done == 0 && forebay.CodeOf(err) == forebay.CodeInvalidRequest {
			return redrivePage(r, form, kit.Explain(err))
		}
		if err != nil {
			return partly(err, done, "redriven")
		}
		done += report.Redriven
		more, req.UpTo, req.FirstAt = report.More, report.UpTo, report.NextAt
	}
	notice := ended(done, more && most == 0, "redriven")
	if rate > 0 && done > 1 {
		notice += fmt.Sprintf(" They become active within %s; until then they are scheduled.", kit.Duration(time.Duration(float64(done-1)/rate*float64(time.Second))))
	}
	if more && most == 0 && rate > 0 && req.FirstAt != nil { // the rest follows these, so that rates do not add up
		next := kit.Values("reason", form.Get("reason"), "rate", form.Get("rate"), "first_at", req.FirstAt.Format(time.RFC3339Nano))
		return r.Done(e.Page("redrive")+"?"+next.Encode(), notice)
	}
	return r.Done(tabOf(e.Page(), true), notice)
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
	if v.Get("tab") != deadTab && v.Get("before") == "" { // what is sent later was not looked at
		v.Set("before", time.Now().UTC().Truncate(time.Millisecond).Add(time.Millisecond).Format(time.RFC3339Nano))
	}
	c := confirmation{Type: e.Name, Action: e.Page("purge"), Button: "Remove for good", Back: tabOf(e.Page(), v.Get("tab") == deadTab), Problem: problem, Hidden: hidden(v), Scope: "operate"}
	if v.Get("tab") != deadTab {
		c.Text = "All active messages of " + e.Name + " that are there now will be removed for good. Locked, deferred and scheduled ones stay, and so do its dead letters."
		return pages.Render(r, "confirm", kit.Page{Title: "Purge " + e.Name, Section: e.section(), Data: c, Still: true, Status: status,
			Commands: []string{"forebay messages delete " + kit.Shell(e.Name) + " --all"}})
	}
	messages := r.Client.Messages(e.subqueue(true))
	if v.Get("number") == "" && v.Get("up_to") == "" { // what is sent later was not looked at
		groups, err := messages.DeadGroups(r.Context())
		if err != nil {
			return err
		}
		if groups.UpTo > 0 {
			v.Set("up_to", strconv.FormatInt(groups.UpTo, 10))
		}
	}
	f, what, err := deadFilter(v)
	if err != nil {
		return err
	}
	f.DryRun = true
	report, err := messages.PurgeDead(r.Context(), f)
	if err != nil {
		return err
	}
	c.Hidden = hidden(v)
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
		return purgeActive(r, e, form.Get("before"))
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

// purgeActive removes what was there when the page was shown.
func purgeActive(r *kit.Request, e entity, shown string) error {
	before := time.Now()
	if shown != "" {
		at, err := time.Parse(time.RFC3339Nano, shown)
		if err != nil {
			return forebay.Invalid("before", "must be a time")
		}
		before = at
	}
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
