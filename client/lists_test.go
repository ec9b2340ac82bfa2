package client

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func TestListReadsPagesAsTheyAreNeeded(t *testing.T) {
	var queries []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		page := forebay.Page[forebay.Job]{Items: []forebay.Job{{ID: "a"}, {ID: "b"}}, NextCursor: "second"}
		if r.URL.Query().Get("cursor") == "second" {
			page = forebay.Page[forebay.Job]{Items: []forebay.Job{{ID: "c"}}}
		}
		answerJSON(w, http.StatusOK, page)
	})
	filter := forebay.JobFilter{Status: []forebay.Status{"queued", "failed"}, Queue: "q", Limit: 2}
	var ids string
	for job, err := range c.List(t.Context(), filter) {
		if err != nil {
			t.Fatal(err)
		}
		ids += job.ID
	}
	if ids != "abc" || len(queries) != 2 || queries[0] != "limit=2&queue=q&status=queued&status=failed" {
		t.Errorf("ids %s by %q", ids, queries)
	}
	queries = nil
	for range c.List(t.Context(), filter) {
		break
	}
	if len(queries) != 1 {
		t.Errorf("%d pages read for one item", len(queries))
	}
}

func TestListDoesNotFollowACircle(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, forebay.Page[forebay.Job]{NextCursor: "same"})
	})
	var last error
	for _, err := range c.List(t.Context(), forebay.JobFilter{}) {
		last = err
	}
	if last == nil {
		t.Error("no error")
	}
}

// A purge goes on until there is no next part, and after an error says where it was.
func TestPurge(t *testing.T) {
	var bodies []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.URL.Path+" "+string(b))
		switch len(bodies) {
		case 1:
			io.WriteString(w, `{"purged":2000,"next_cursor":"c1"}`)
		case 2:
			io.WriteString(w, `{"purged":0,"next_cursor":"c2"}`)
		case 3:
			answerProblem(w, http.StatusForbidden, forebay.CodeForbidden, "", "no")
		default:
			io.WriteString(w, `{"purged":7}`)
		}
	})
	req := forebay.PurgeJobsRequest{Before: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Status: []forebay.Status{forebay.StatusFailed}}
	report, err := c.Purge(t.Context(), req)
	if forebay.CodeOf(err) != forebay.CodeForbidden || report.Purged != 2000 || report.NextCursor != "c2" {
		t.Errorf("%+v (%v)", report, err)
	}
	req.Cursor = report.NextCursor
	if report, err = c.Purge(t.Context(), req); err != nil || report.Purged != 7 || report.NextCursor != "" {
		t.Errorf("%+v (%v)", report, err)
	}
	const path = `/v1/jobs/purge {"before":"2030-01-02T03:04:05Z","status":["failed"]`
	if want := []string{path + "}", path + `,"cursor":"c1"}`, path + `,"cursor":"c2"}`, path + `,"cursor":"c2"}`}; !slices.Equal(bodies, want) {
		t.Errorf("got %q", bodies)
	}
}
