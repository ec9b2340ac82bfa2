package kit

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/forebayhq/forebay"
)

// Version is what a form has shown of what it changes: its entity tag, and values that tell later
// what has changed since. The template "version" carries it in a form.
type Version struct {
	ETag  string
	Shown string // JSON of values; "": none
}

// Value is a value that a form shows, under the name that the page has for it.
type Value struct{ Name, Text string }

// VersionOf returns the version of what has that entity tag and these values.
func VersionOf(etag string, values ...Value) Version {
	text, err := json.Marshal(values)
	if err != nil || len(values) == 0 { // a list of texts: there is no error
		return Version{ETag: etag}
	}
	return Version{etag, string(text)}
}

// ReadVersion returns the version that a form carries.
func ReadVersion(form url.Values) Version { return Version{form.Get("etag"), form.Get("shown")} }

// On returns the context of a change that the API makes only if nobody has changed the thing
// since the version was shown.
func (r *Request) On(v Version) context.Context {
	return forebay.WithCondition(r.Context(), forebay.IfMatch(v.ETag))
}

// IfNew returns the context of a change that the API makes only if it creates something.
func (r *Request) IfNew() context.Context {
	return forebay.WithCondition(r.Context(), forebay.IfNew())
}

// Changed reports whether a change was refused because somebody else has made one.
func Changed(err error) bool { return forebay.CodeOf(err) == forebay.CodePreconditionFailed }

// Again says how a form is shown again after an error: the status of the page, what is wrong, and
// the version that the form carries. now is the present version. After an error of another kind
// the form keeps its own.
func (v Version) Again(err error, now Version) (status int, problem string, next Version) {
	if Changed(err) {
		return http.StatusConflict, v.changes(now), now
	}
	return http.StatusUnprocessableEntity, Explain(err), v
}

// changes says that somebody has changed something, and what of it.
func (v Version) changes(now Version) string {
	text := "Somebody has changed this since you opened the page. Nothing was saved."
	var changes []string
	before := v.values()
	for _, value := range now.values() {
		for _, old := range before {
			if old.Name == value.Name && old.Text != value.Text {
				changes = append(changes, value.Name+", "+orNothing(old.Text)+" before, is "+orNothing(value.Text)+" now")
			}
		}
	}
	if len(changes) > 0 {
		text += " What has changed: " + strings.Join(changes, "; ") + "."
	}
	return text + " Look at the values of now, and save again if yours are still right."
}

func (v Version) values() (values []Value) {
	if json.Unmarshal([]byte(v.Shown), &values) != nil { // the browser sent something else
		return nil
	}
	return values
}

// mostOfValue is how much of a value such a text holds, in bytes.
const mostOfValue = 200

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return Clean(clip(text, mostOfValue))
}

// Switch is the text of a value that is on or off.
func Switch(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
