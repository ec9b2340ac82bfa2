package forebay

import "time"

// SignIn is a session of the dashboard: a browser in which somebody has signed in.
type SignIn struct {
	ID        string    `json:"id" doc:"of the session; nobody signs in with it"`
	Owner     string    `json:"owner" doc:"id of the API key, or person: and a name for who signed in by OpenID Connect"`
	Tenant    string    `json:"tenant"`
	Scopes    []Scope   `json:"scopes"`
	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at" doc:"to the minute; what pages fetch by themselves is no use"`
	ExpiresAt time.Time `json:"expires_at" doc:"it ends sooner when nobody uses it, and with its key"`
}

// EndedSignIns tells how many sessions of the dashboard were ended.
type EndedSignIns struct {
	Ended int `json:"ended"`
}

// MaxSignIns is how many sessions of the dashboard a list has at most.
const MaxSignIns = 1000
