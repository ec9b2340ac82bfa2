package api_test

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/api"
)

// cutSignIns lists one session, and there are more unless the list is of an owner.
type cutSignIns struct{ api.SignIns }

func (cutSignIns) List(_ context.Context, owner string) ([]forebay.SignIn, bool, error) {
	return []forebay.SignIn{{ID: "signin_1", Owner: "person:ada"}}, owner == "", nil
}

// A list of sessions of the dashboard that was cut says so.
func TestACutListOfSignInsSaysSo(t *testing.T) {
	f := newFixture(t, func(o *api.Options) { o.SignIns = cutSignIns{} })
	c, err := client.New(client.Options{BaseURL: f.server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[string]bool{"": true, "person:ada": false} {
		list, more, err := c.SignIns(t.Context(), owner)
		if err != nil || len(list) != 1 || more != want {
			t.Errorf("of %q: %+v, more: %v, %v", owner, list, more, err)
		}
	}
}
