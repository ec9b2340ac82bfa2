package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// readAge is how long readings are reused, so that several scrapers cost no more than one.
	readAge = 5 * time.Second
	// readTimeout is less than Prometheus waits for an answer. While the database hangs, a scrape
	// still has what needs no database.
	readTimeout = 3 * time.Second
)

// readings are what gauges read from the database. A collection makes them all at the same time:
// one that hangs does not hold up the others.
type readings struct {
	log  *slog.Logger
	mu   sync.Mutex
	list []func(context.Context) (of string, err error)
	at   time.Time // of the latest ones
	said time.Time // when a failure was logged last
}

// reading is what one of them found.
type reading[T any] struct {
	all   *readings
	found []T
}

func newReading[T any](all *readings, of string, read func(context.Context) ([]T, error)) *reading[T] {
	r := &reading[T]{all: all}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.list = append(all.list, func(ctx context.Context) (string, error) {
		found, err := read(ctx)
		if err != nil {
			found = nil
		}
		r.found = found
		return of, err
	})
	return r
}

// get reads, or returns what was read a moment ago. It returns nothing if reading has failed.
func (r *reading[T]) get() []T {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.all.refresh()
	return r.found
}

// refresh reads everything, unless that was done a moment ago. Failures are logged together, at
// most once a minute.
func (a *readings) refresh() {
	if !a.at.IsZero() && time.Since(a.at) < readAge {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	failed, errs := make([]string, len(a.list)), make([]error, len(a.list))
	var reading sync.WaitGroup
	for i, read := range a.list {
		reading.Go(func() { failed[i], errs[i] = read(ctx) })
	}
	reading.Wait()
	a.at = time.Now()
	var of []string
	var first error
	for i, err := range errs {
		if err != nil {
			of = append(of, failed[i])
			if first == nil {
				first = err
			}
		}
	}
	if first != nil && (a.said.IsZero() || time.Since(a.said) >= time.Minute) {
		a.log.Warn("cannot read gauges", slog.String("of", strings.Join(of, ", ")), slog.Any("error", first))
		a.said = time.Now()
	}
}
