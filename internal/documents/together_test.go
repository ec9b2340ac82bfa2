package documents

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// Steps of one document that come in one transaction do what they would do one after the other.
func TestStepsOfADocumentTogether(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		d := &tripsOfDocuments{TB: t, s: s, tenant: tenantOf(t, s, "acme")}
		sub := d.follow("acme")
		together := func(calls ...func() error) []error {
			t.Helper()
			return dbtest.InOneTransaction(t, s.DB, calls...)
		}
		succeed := func(ends []error) {
			t.Helper()
			d.check(errors.Join(ends...))
		}
		told := func() (events []string) {
			t.Helper()
			got, err := s.Bus.Receive(t.Context(), bus.ReceiveRequest{Queue: sub, Max: 100, MaxBytes: 1 << 20})
			d.check(err)
			for _, m := range got {
				if slices.Contains([]string{string(forebay.EventDocumentFailed), string(forebay.EventDocumentReady)}, m.Subject) {
					events = append(events, m.Subject)
				}
				d.check(s.Bus.Complete(t.Context(), sub.Subqueue(false), m.Lock))
			}
			return events
		}

		// The jobs of one document fail: its failure is published once.
		failing := d.split(1)
		succeed(together(d.fails(failing)...))
		if events := told(); !slices.Equal(events, []string{string(forebay.EventDocumentFailed)}) {
			t.Errorf("a failure is told as %v", events)
		}
		// It is retried by two callers: each job is sent back once.
		row, err := s.Documents.Document(t.Context(), d.tenant, failing[0].id)
		d.check(err)
		again := make([][]DocumentJob, len(row.Failed))
		for i := range again {
			again[i] = []DocumentJob{{Branch: BranchEmbedding, Job: d.job(fmt.Sprint("job_once_", i))}}
		}
		retried := 0
		retry := func() error {
			n, err := s.Documents.RetryDocument(t.Context(), d.tenant, failing[0].rev.ID, row.Failed, again)
			retried += n
			return err
		}
		one, two := 0, 0
		succeed(together(func() error {
			n, err := s.Documents.RetryDocument(t.Context(), d.tenant, failing[0].rev.ID, row.Failed, again)
			one = n
			return err
		}, func() error {
			n, err := s.Documents.RetryDocument(t.Context(), d.tenant, failing[0].rev.ID, row.Failed, again)
			two = n
			return err
		}))
		if one+two != len(row.Failed) || len(row.Failed) == 0 {
			t.Errorf("%d and %d jobs were retried of %d", one, two, len(row.Failed))
		}
		if d.check(retry()); retried != 0 {
			t.Errorf("%d were retried again", retried)
		}
		told()

		// All that is missing comes at once, some of it twice: the document is ready once.
		u := d.split(1)[0]
		calls := append(d.embeds(u), d.embeds(u)...)
		describe := func() error { return d.describe(u) }
		succeed(together(append(calls, describe, describe)...))
		if events := told(); !slices.Equal(events, []string{string(forebay.EventDocumentReady)}) {
			t.Errorf("what is ready is told as %v", events)
		}
		rev, err := s.Documents.RevisionOf(t.Context(), d.tenant, u.rev.ID)
		if d.check(err); !rev.Live || rev.Embedded != batchesOf*chunksEach {
			t.Errorf("live: %v, with %d vectors", rev.Live, rev.Embedded)
		}

		// New content takes its place, and the document is deleted meanwhile by two callers.
		next := d.addTo(u.id)
		d.check(s.Documents.BeginSplit(t.Context(), next.rev, splitter))
		d.check(d.endSplit(next))
		for _, call := range d.embeds(next) {
			d.check(call())
		}
		remove := func() error {
			_, err := s.Documents.DeleteDocument(t.Context(), d.tenant, u.id, audit.Act{Action: "delete-document"})
			return err
		}
		ends := together(func() error { return d.describe(next) }, remove, remove)
		if ends[0] != nil || ends[1] != nil || !errors.Is(ends[2], forebay.ErrNotFound) {
			t.Errorf("described, deleted, deleted: %v", ends)
		}
		for _, id := range []string{u.rev.ID, next.rev.ID} {
			if _, err := s.Documents.RevisionOf(t.Context(), d.tenant, id); forebay.CodeOf(err) != forebay.CodeGone {
				t.Errorf("%s: %v", id, err)
			}
		}
		purgeAll(t, s)

		// Two uploads of one document: the second replaces the first.
		id := d.newDocument()
		first, second := d.upload(id), d.upload(id)
		upload := func(n NewRevision) func() error {
			return func() error { _, err := s.Documents.AddRevision(t.Context(), n); return err }
		}
		succeed(together(upload(first), upload(second), upload(second)))
		latest, err := s.Documents.Document(t.Context(), d.tenant, id)
		if d.check(err); latest.Latest.ID != second.ID {
			t.Errorf("the latest is %s", latest.Latest.ID)
		}
	})
}
