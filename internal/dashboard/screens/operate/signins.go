package operate

import (
	"net/url"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

const signInsPath = "/sign-ins"

// signIn is what the page shows of a session of the dashboard.
type signIn struct {
	forebay.SignIn
	Own bool // of who looks
}

// Person reports whether an OpenID Connect provider vouches for the owner.
func (s signIn) Person() bool { return forebay.Caller{KeyID: s.Owner}.IsPerson() }

type signInsData struct {
	SignIns []signIn
	Total   int
	Most    bool // there are more than the API tells
	Next    string
	Of      string // only of this owner
}

// listSignIns answers GET /sign-ins.
func listSignIns(r *kit.Request) error {
	data := signInsData{Of: r.Query("of")}
	found, more, err := r.Client.SignIns(r.Context(), data.Of)
	if err != nil {
		return err
	}
	list := make([]signIn, len(found))
	for i, s := range found {
		list[i] = signIn{s, s.Owner == r.Caller.KeyID}
	}
	data.Total, data.Most = len(list), more
	if data.SignIns, data.Next, err = part(r, list); err != nil {
		return err
	}
	commands := []string{"forebay sign-ins list"}
	if data.Of != "" {
		commands = []string{"forebay sign-ins list --owner " + kit.Shell(data.Of)}
		if r.May("admin") {
			commands = append(commands, "forebay sign-ins end --owner "+kit.Shell(data.Of))
		}
	}
	return pages.Render(r, "sign-ins", kit.Page{Title: "Who has signed in", Section: signInsPath, Data: data, Commands: commands})
}

// endSignIn answers POST /sign-ins/{id}/end.
func endSignIn(r *kit.Request) error {
	if err := r.Client.EndSignIn(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	form, err := r.Form()
	if err != nil {
		return err
	}
	path := signInsPath
	if of := form.Get("of"); of != "" {
		path += "?of=" + url.QueryEscape(of)
	}
	return r.Done(path, "The session is ended. Its pages ask to sign in again.")
}

// endSignIns answers POST /sign-ins: it ends all sessions of an owner.
func endSignIns(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	ended, err := r.Client.EndSignIns(r.Context(), form.Get("owner"))
	if err != nil {
		return err
	}
	return r.Done(signInsPath, kit.Plural(ended, "session")+" ended.")
}
