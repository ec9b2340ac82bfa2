package dashboard_test

import (
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
)

// Whoever has a key signs in, sees pages, and signs out. What a page of another origin sends is
// refused.
func TestPages(t *testing.T) {
	axe, browser := axeSource(t), browsertest.Start(t)
	s := start(t, "sqlite:"+t.TempDir()+"/forebay.db")
	key := s.key(t, forebay.ScopeAdmin)
	page := browser.Open(t)
	inspect(t, page, axe, s.url+"/ui/sign-in", "sign-in")
	page.Go(s.url + "/ui/jobs")
	page.WaitText("API key")
	page.Complaints() // of the 401
	page.Type("input[name=key]", "fb_wrong")
	page.Submit("main button")
	page.WaitText("unknown, expired or revoked")
	page.Type("input[name=key]", key)
	page.Submit("main button")
	page.WaitText("No job here")
	page.Complaints()
	inspect(t, page, axe, s.url+"/ui/jobs", "jobs")
	page.Submit("form[action$=sign-out] button")
	page.WaitText("API key")
}
