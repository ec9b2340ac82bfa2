package messages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// mostEditable bounds a body that the page lets somebody edit.
const mostEditable = 1 << 20

// mending is what somebody wants to change of a dead letter.
type mending struct {
	Body       string
	Properties string // JSON, or name=value on lines
	// WhyNot says why the body cannot be edited here; "": it can.
	WhyNot string
	ETag   string // of the message as it was shown; "": not known

	Checked        bool
	BodyDiff       []kit.DiffLine
	PropertiesDiff []kit.DiffLine
	Problem        string
}

// mendingOf is the form for a message as it is.
func mendingOf(m *forebay.Message) *mending {
	f := &mending{Properties: propertiesText(m.Properties), ETag: m.ETag}
	switch {
	case m.BodyWithheld:
		f.WhyNot = "You may not open the body. It stays as it is."
	case m.Body == nil && m.BodyBase64 != nil:
		f.WhyNot = "The body is bytes. Give a new one by the command, with --set-body-file."
	case m.Body != nil && len(*m.Body) > mostEditable:
		f.WhyNot = "The body is too large to be edited here. Give a new one by the command, with --set-body-file."
	case m.Body != nil && !survives(*m.Body):
		f.WhyNot = "The body has characters that this page cannot show as they are. Give a new one by the command, with --set-body-file."
	case m.Body != nil:
		f.Body = plainLines(*m.Body)
	}
	return f
}

// survives reports whether the page shows the text as it is and a browser's form gives it back
// unchanged. Only the ends of its lines may change, and they are all of one kind.
func survives(text string) bool {
	ends, windows := strings.Count(text, "\n"), strings.Count(text, "\r\n")
	lines := plainLines(text)
	return kit.Clean(lines) == lines && strings.Count(text, "\r") == windows && (windows == 0 || windows == ends)
}

// propertiesText is a message's properties as JSON on lines; "": it has none. What pages do not
// show as it is, is escaped.
func propertiesText(p forebay.Properties) string {
	raw, err := json.Marshal(p)
	var indented bytes.Buffer
	if err != nil || len(p) == 0 || json.Indent(&indented, raw, "", "  ") != nil {
		return ""
	}
	var out strings.Builder
	for _, r := range indented.String() {
		if c := string(r); kit.Clean(c) == c {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// change is what differs between the form and the message; nil: nothing.
func (f *mending) change(m *forebay.Message, was *mending) (*forebay.MessageEdit, error) {
	change := &forebay.MessageEdit{}
	changed := false
	if was.WhyNot == "" && f.Body != was.Body {
		body := f.Body
		if m.Body != nil && strings.Contains(*m.Body, "\r\n") {
			body = strings.ReplaceAll(body, "\n", "\r\n")
		}
		change.Body, changed = &body, true
	}
	properties, err := parseProperties(f.Properties, "\n")
	if err != nil {
		return nil, err
	}
	if propertiesText(properties) != was.Properties {
		if change.Properties = properties; properties == nil {
			change.Properties = forebay.Properties{}
		}
		changed = true
	}
	if !changed {
		return nil, nil //nolint:nilnil // no change is what was asked for
	}
	return change, nil
}

// mend answers POST …/messages/{number}: it checks an edit of a dead letter, or redrives the
// message with it.
func mend(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	d, err := messageOf(r, true)
	if forebay.CodeOf(err) == forebay.CodeNotFound && r.May("operate") {
		return forebay.Errorf(forebay.CodeConflict, "the message is not a dead letter of this queue: somebody may have redriven or purged it, and your change was not stored")
	}
	if err != nil {
		return err
	}
	was := d.Mend
	d.Mend = &mending{Body: plainLines(form.Get("body")), Properties: plainLines(form.Get("properties")), WhyNot: was.WhyNot, ETag: was.ETag}
	edit, err := d.Mend.change(&d.Message, was)
	if err != nil {
		return d.again(r, kit.Explain(err))
	}
	number := d.Message.SequenceNumber
	req := forebay.RedriveMessagesRequest{Edit: edit, DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: []int64{number}, DryRun: form.Get("act") != "redrive"}}
	ctx := r.Context()
	if shown := form.Get("etag"); shown != "" && edit != nil {
		ctx = forebay.WithCondition(ctx, forebay.IfMatch(shown))
	}
	report, err := r.Client.Messages(d.Entity.subqueue(true)).Redrive(ctx, req)
	if forebay.CodeOf(err) == forebay.CodePreconditionFailed {
		d.Mend.Problem = "The message has changed since the page was shown, or somebody holds it. Nothing was stored. Look at it, and check your change again."
		return d.render(r, http.StatusConflict)
	}
	if _, problem, ok := refused(err); ok {
		return d.again(r, problem)
	}
	switch {
	case err != nil:
		return err
	case report.Redriven == 0:
		return forebay.Errorf(forebay.CodeConflict, "the message is locked, deferred, or not here any more; your change was not stored")
	case !req.DryRun:
		return r.Done(tabOf(d.Entity.Page(), true), "The message "+strconv.FormatInt(number, 10)+" is redriven under a new number.")
	}
	d.Mend.Checked = true
	if edit != nil && edit.Body != nil {
		d.Mend.BodyDiff = kit.Diff(was.Body, d.Mend.Body)
	}
	if edit != nil && edit.Properties != nil {
		d.Mend.PropertiesDiff = kit.Diff(was.Properties, propertiesText(edit.Properties))
	}
	return d.render(r, http.StatusOK)
}

// again shows what somebody has typed, and why it was refused.
func (d messageData) again(r *kit.Request, problem string) error {
	d.Mend.Problem = problem
	return d.render(r, http.StatusUnprocessableEntity)
}
