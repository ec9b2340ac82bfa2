package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/forebayhq/forebay/internal/retention"
)

// Retention says how long jobs and orchestrations are kept after their end. 0 means for ever, and
// nil means the default.
type Retention struct {
	Succeeded *time.Duration `koanf:"succeeded"` // default 2160h, 90 days
	// Failed also covers cancelled and expired jobs; default 2160h.
	Failed *time.Duration `koanf:"failed"`
	// SetAside covers jobs in dead-letter and quarantine subqueues; default 0.
	SetAside       *time.Duration `koanf:"set_aside"`
	Orchestrations *time.Duration `koanf:"orchestrations"` // instances that are over; default 2160h
	Batches        *time.Duration `koanf:"batches"`        // of OpenAI's API that are over; default 2160h
	// Responses covers stored responses of OpenAI's API, from when they were made; default 720h.
	Responses *time.Duration `koanf:"responses"`
}

// defaultRetention keeps jobs for as long as people ask for them, and bounds the size of the
// database.
const defaultRetention = 90 * 24 * time.Hour

// defaultResponsesRetention is OpenAI's own: 30 days.
const defaultResponsesRetention = 30 * 24 * time.Hour

func (r Retention) withDefaults() Retention {
	return Retention{
		Succeeded: or(r.Succeeded, new(defaultRetention)), Failed: or(r.Failed, new(defaultRetention)), SetAside: or(r.SetAside, new(time.Duration(0))),
		Orchestrations: or(r.Orchestrations, new(defaultRetention)), Responses: or(r.Responses, new(defaultResponsesRetention)),
		Batches: or(r.Batches, new(defaultRetention)),
	}
}

func (r Retention) validate(bad func(field, format string, args ...any)) {
	for _, keep := range []struct {
		name string
		time time.Duration
	}{{"succeeded", *r.Succeeded}, {"failed", *r.Failed}, {"set_aside", *r.SetAside}, {"orchestrations", *r.Orchestrations}, {"responses", *r.Responses}, {"batches", *r.Batches}} {
		if keep.time != 0 && keep.time < time.Minute {
			bad("retention."+keep.name, "must be at least 1m, or 0 for ever")
		}
	}
}

func (r Retention) jobs() retention.Policy {
	return retention.Policy{Succeeded: *r.Succeeded, Failed: *r.Failed, SetAside: *r.SetAside}
}

// every is how often old jobs and orchestrations are deleted: each hour, or more often where they
// are kept for less.
func (r Retention) every() time.Duration {
	every := time.Hour
	for _, keep := range []time.Duration{*r.Succeeded, *r.Failed, *r.SetAside, *r.Orchestrations} {
		if keep > 0 {
			every = min(every, keep)
		}
	}
	return every
}

// purge deletes jobs and orchestrations whose retention has ended.
func (s *Server) purge(ctx context.Context, every time.Duration) {
	if keep := *s.options.Retention.Orchestrations; keep > 0 {
		purged, err := s.orchestrations.PurgeExpired(ctx, keep, every)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("cannot purge old orchestrations", slog.Any("error", err))
		}
		s.log.Debug("purged old orchestrations", slog.Int("count", purged))
	}
	purged, err := s.retention.PurgeExpired(ctx, s.options.Retention.jobs(), every)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot purge old jobs", slog.Any("error", err))
		return
	}
	level := slog.LevelDebug
	if purged > 0 {
		level = slog.LevelInfo
	}
	s.log.Log(ctx, level, "purged old jobs", slog.Int("count", purged))
}
