package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// A batch is listed and shown with its counts, its errors and its files.
func TestPagesOfBatches(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		cancelled := make(chan struct{})
		s := dashboardtest.Start(t, database, dashboardtest.Provider(t, cancelled))
		key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		c, v := s.Client(t, key), s.Visit(t, key)
		done := dashboardtest.WaitBatch(t, c, dashboardtest.BatchOf(t, s, c, dashboardtest.LinesOf("hi", "refuse", "ho")).ID)
		bad := dashboardtest.WaitBatch(t, c, dashboardtest.BatchOf(t, s, c, dashboardtest.LinesOf("hi")+"nonsense\n").ID)
		if done.Status != forebay.BatchCompleted || bad.Status != forebay.BatchFailed {
			t.Fatalf("%+v %+v", done, bad)
		}
		v.Get("/batches").Is(200).Has(done.ID, bad.ID, "2 answered, 1 failed, of 3", "/v1/chat/completions", "chat", `aria-label="2 answered, 1 failed, of 3 lines"`)
		v.Get("/batches/"+done.ID).Is(200).Has(dashboardtest.Escaped, "66.7 %", "correlation_id="+done.ID, "status=failed", "2,200 in, 14 out").Lacks("<script>", "\u202e", "Cancel the batch")
		v.Get("/batches/"+bad.ID).Is(200).Has("Why the input was refused", `<td class="n">2</td>`)
		for which, part := range map[string]string{"input": "refuse", "output": "javascript:alert", "errors": "r1"} {
			file := v.Get("/batches/" + done.ID + "/files/" + which).Is(200)
			h := file.Header
			if !strings.Contains(file.Body, part) || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Content-Disposition") != "attachment; filename="+done.ID+"_"+which+".jsonl" {
				t.Errorf("%s: %v %s", which, h, file.Body)
			}
		}
		v.Get("/batches/" + done.ID + "/files/other").Is(http.StatusNotFound)
		v.Get("/batches/" + bad.ID + "/files/output").Is(http.StatusNotFound)
		v.Get("/batches/batch_none").Is(http.StatusNotFound)

		open := dashboardtest.BatchOf(t, s, c, dashboardtest.LinesOf("wait", "wait"))
		v.Get("/batches/" + open.ID).Is(200).Has("Cancel the batch")
		v.Post("/batches/"+open.ID+"/cancel", url.Values{}).Is(200).Has("is being cancelled")
		close(cancelled) // else lines that run have a minute to end
		if b := dashboardtest.WaitBatch(t, c, open.ID); b.Status != forebay.BatchCancelled {
			t.Errorf("it is %s", b.Status)
		}
		v.Post("/batches/"+done.ID+"/cancel", url.Values{}).Is(http.StatusConflict)
	})
}

// A job's page has the tools that its result calls, as text.
func TestToolCallsOfAJob(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Provider(t, nil))
	key := s.Key(t, forebay.ScopeAdmin)
	job := s.Job(t, key, "chat", `"How warm is it?"`, forebay.StatusSucceeded)
	s.Visit(t, key).Get("/jobs/"+job.ID).Is(http.StatusOK).Has("1 call of tools", "<td>weather</td>", "call_7", "&lt;i&gt;Oslo").Lacks("<i>")
}

// Responses are listed without what they say, and shown with it.
func TestPagesOfResponses(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, dashboardtest.Provider(t, nil))
		key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		c, v := s.Client(t, key), s.Visit(t, key)
		waited, made, refused, open := dashboardtest.Ask(t, s, c, "hi", false), dashboardtest.Ask(t, s, c, "hi", true), dashboardtest.Ask(t, s, c, "refuse", true), dashboardtest.Ask(t, s, c, "wait", true)
		listed := dashboardtest.ResponseIs(t, c, made, "completed")
		dashboardtest.ResponseIs(t, c, refused, "failed")

		v.Get("/responses").Is(200).Has(waited, made, refused, open, listed.JobID, "4 responses on this page", "forebay response list").Lacks("javascript:")
		v.Get("/responses?status=failed").Is(200).Has(refused, "forebay response list --status failed").Lacks(waited, made, open)
		v.Get("/responses?background=false").Is(200).Has(waited).Lacks(made, refused, open)
		v.Get("/responses?status=odd").Is(http.StatusUnprocessableEntity)
		v.Get("/responses?cursor=resp_odd").Is(http.StatusUnprocessableEntity)
		v.Get("/responses/"+made).Is(200).Has(dashboardtest.Escaped, "weather", "call_7", "&lt;i&gt;Oslo", "1,100 in, 7 out, 1,107 in all", "/ui/jobs/"+listed.JobID, "forebay response show "+made, "forebay response delete "+made, "in the background").
			Lacks("<script>", "\u202e", "Cancel the response")
		v.Get("/responses/"+waited).Is(200).Has(dashboardtest.Escaped, "while the client waited").Lacks("Cancel the response")
		v.Get("/responses/"+refused).Is(200).Has("Error", "failed")
		v.Get("/responses/resp_none").Is(http.StatusNotFound)
		whole := v.Get("/responses/" + made + "/content").Is(200)
		if !json.Valid([]byte(whole.Body)) || !strings.HasPrefix(whole.Header.Get("Content-Type"), "text/plain") || !strings.Contains(whole.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%v %s", whole.Header, whole.Body)
		}

		v.Get("/responses/"+open).Is(200).Has("Cancel the response", "no text yet")
		v.Post("/responses/"+open+"/cancel", url.Values{}).Is(200).Has("was cancelled")
		dashboardtest.ResponseIs(t, c, open, "cancelled")
		v.Post("/responses/"+made+"/delete", url.Values{"confirm": {"resp"}}).Is(http.StatusUnprocessableEntity).Has("nothing was changed")
		v.Post("/responses/"+made+"/delete", url.Values{"confirm": {made}}).Is(200).Has("was deleted")
		v.Get("/responses/" + made).Is(http.StatusNotFound)
		v.Get("/responses").Is(200).Has("3 responses on this page")
	})
}

// Whoever may only look changes nothing. A viewer from another tenant sees no payloads without
// the scope, and with it leaves a row in the audit log.
func TestScopesOnPagesOfOpenAI(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), dashboardtest.Provider(t, nil))
	key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
	c := s.Client(t, key)
	id := dashboardtest.Ask(t, s, c, "hi", false)
	b := dashboardtest.WaitBatch(t, c, dashboardtest.BatchOf(t, s, c, dashboardtest.LinesOf("hi")).ID)
	form := url.Values{"confirm": {id}}
	changes := []string{"/batches/" + b.ID + "/cancel", "/responses/" + id + "/cancel", "/responses/" + id + "/delete"}
	pages := []string{"/batches/" + b.ID, "/batches/" + b.ID + "/files/output", "/responses/" + id, "/responses/" + id + "/content"}

	views := s.Visit(t, s.Key(t, forebay.ScopeView))
	views.Get("/responses/" + id).Is(200).Has(dashboardtest.Escaped).Lacks("<form")
	views.Get("/batches/" + b.ID).Is(200).Lacks("<form")
	for _, path := range changes {
		views.Post(path, form).Is(http.StatusForbidden)
	}
	elsewhere := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeSubmit, forebay.ScopeRead))
	elsewhere.Get("/batches").Is(200).Lacks(b.ID)
	elsewhere.Get("/responses").Is(200).Lacks(id)
	for _, path := range pages {
		elsewhere.Get(path).Is(http.StatusNotFound)
		elsewhere.Get(path + "?tenant=acme").Is(http.StatusForbidden)
	}
	for _, path := range changes {
		elsewhere.Post(path, form).Is(http.StatusNotFound)
	}
	visits := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeView, forebay.ScopeSubmit))
	visits.Get("/batches?tenant=acme").Is(200).Has(b.ID)
	visits.Get("/responses?tenant=acme").Is(200).Has(id)
	visits.Get("/responses/"+id+"?tenant=acme").Is(200).Has("need a key with the scope", "chat").Lacks("javascript:", "<form")
	visits.Get("/batches/" + b.ID + "/files/output?tenant=acme").Is(http.StatusForbidden)
	visits.Get("/responses/" + id + "/content?tenant=acme").Is(http.StatusForbidden)
	for _, path := range changes {
		visits.Post(path+"?tenant=acme", form).Is(http.StatusForbidden)
	}
	opens := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeView, forebay.ScopePayload))
	opens.Get("/responses/"+id+"?tenant=acme").Is(200).Has(dashboardtest.Escaped, "?tenant=acme")
	opens.Get("/batches/" + b.ID + "/files/output?tenant=acme").Is(200)
	var log struct{ Items []forebay.AuditEntry }
	if err := s.Client(t, s.Key(t, forebay.ScopeAdmin)).Call(t.Context(), http.MethodGet, "/v1/audit", nil, nil, &log); err != nil {
		t.Fatal(err)
	}
	var opened []string
	for _, row := range log.Items {
		if row.Action == "open-payload" {
			opened = append(opened, row.Target)
		}
	}
	if all := strings.Join(opened, " "); len(opened) != 2 || !strings.Contains(all, id) || !strings.Contains(all, b.OutputFile) {
		t.Errorf("the audit log has openings of %q", opened)
	}
}
