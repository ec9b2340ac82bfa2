package documents

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/panics"
)

// Run works in the background until ctx ends. It removes deleted and replaced documents and keeps
// the database's own index of vectors up to date, if it has one.
func (s *Service) Run(ctx context.Context) {
	const every = 30 * time.Second // another process may have dropped some, or made some live
	live := make(chan struct{}, 1)
	var indexing sync.WaitGroup
	indexing.Go(func() { s.keepIndex(ctx, live) }) // building an index may take minutes
	defer indexing.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case live <- struct{}{}:
		default:
		}
		if err := panics.Run(s.Logger, "removing documents", func() error { return s.Purge(ctx) }); err != nil && ctx.Err() == nil {
			s.Logger.Warn("cannot remove what is left of documents", slog.Any("error", err))
		}
		select {
		case <-s.changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// keepIndex brings the database's own index of vectors up to date whenever vectors may have gone
// live, until ctx ends.
func (s *Service) keepIndex(ctx context.Context, live <-chan struct{}) {
	for prepared := false; ; {
		select {
		case <-live:
		case <-ctx.Done():
			return
		}
		prepared = prepared || s.prepare(ctx)
		if err := panics.Run(s.Logger, "indexing documents", func() error { return s.Index(ctx) }); err != nil && ctx.Err() == nil {
			s.Logger.Warn("cannot index the vectors of documents", slog.Any("error", err))
		}
	}
}

// prepare finds out how the database searches for vectors, and reports whether it could.
func (s *Service) prepare(ctx context.Context) bool {
	found, err := s.Store.PrepareVectors(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.Logger.Warn("cannot find out whether the database has pgvector; searches do without for now", slog.Any("error", err))
	case found.Missing != "":
		s.Logger.Info("searches by meaning look through all vectors, in memory", slog.String("reason", found.Missing))
	case found.Pgvector != "":
		s.Logger.Info("searches by meaning use pgvector", slog.String("pgvector_version", found.Pgvector))
	}
	return err == nil
}

// Index brings the database's own index of vectors up to date, if it has one.
func (s *Service) Index(ctx context.Context) error {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = s.Store.IndexVectors(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Purge removes all dropped contents, in small transactions.
func (s *Service) Purge(ctx context.Context) error {
	for ctx.Err() == nil {
		key, more, err := s.Store.PurgeDocuments(ctx)
		if err != nil || !more {
			return err
		}
		if key != "" {
			_ = s.Blobs.Delete(ctx, key) // the sweep would find it too
		}
	}
	return ctx.Err()
}
