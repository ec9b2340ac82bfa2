package store

import (
	"sync/atomic"

	"github.com/forebayhq/forebay"
)

// DocumentStore keeps documents.
type DocumentStore struct {
	*QueueStore
	vectors atomic.Pointer[VectorSupport] // nil: not looked for yet
}

func (s *DocumentStore) attach(*DB) {}

func (s *DocumentStore) follow(jobs *JobStore) {
	jobs.WhenEnded(func(t *tx, e Ended) error {
		if e.Status == forebay.StatusSucceeded {
			return nil
		}
		return documentsKey.of(t).documentJobFailed(e)
	})
	jobs.WhenRedriven(func(t *tx, seq int64) error { return t.prep(sqlDocumentJobAgain).int(seq).exec() })
}

func (s *DocumentStore) join(w *writer) { documentsKey.join(w, &documentsPart{}) }

var documentsKey = newPartKey(func(t *tx, _ *documentsPart) *documentsTx { return &documentsTx{tx: t, jobs: jobsKey.of(t)} })

type documentsPart struct{ passive }

type documentsTx struct {
	*tx
	jobs *jobsTx
}
