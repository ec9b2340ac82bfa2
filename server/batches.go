package server

import (
	"time"

	"github.com/forebayhq/forebay/internal/batches"
	"github.com/forebayhq/forebay/internal/openai"
)

// BatchesQueue is the queue of lines of OpenAI's batches.
const BatchesQueue = "batches"

// Settings of the queue that Options does not set. A batch has a day, so a line is tried for
// longer than other jobs.
const (
	batchesAttempts         = 8
	batchesRetryConcurrency = 16
)

// batchesDefaults are the settings of the queue where the configuration says nothing.
func batchesDefaults(q Queue) Queue {
	q.Retry.Attempts = or(q.Retry.Attempts, batchesAttempts)
	q.Retry.Concurrency = or(q.Retry.Concurrency, batchesRetryConcurrency)
	return q.withDefaults()
}

// newBatches creates the service of batches.
func newBatches(s *Server) *batches.Service {
	o := s.options
	return batches.New(batches.Options{
		Store: s.store.Batches, Files: s.store.Files, Blobs: s.blobs, Jobs: s.jobs, Limits: s.limits, Logger: s.log, Queue: BatchesQueue,
		Endpoints: openai.BatchEndpoints(), Serves: s.deployments.forwards, Task: openai.BatchTask, MaxLines: o.OpenAI.MaxBatchLines,
		MaxLineBytes: o.Limits.MaxInputBytes, Remember: time.Duration(o.Limits.IdempotencyHours) * time.Hour,
		Keep: *o.Retention.Batches,
	})
}
