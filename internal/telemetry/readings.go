package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/panics"
)

const (
	// readAge is how long readings are reused, so that several scrapers cost no more than one.
	readAge = 5 * time.Second
	// readTimeout is less than Prometheus waits for an answer. While the database hangs, a scrape
	// still has what needs no database.
	readTimeout = 3 * time.Second
)

var errNoAnswer = errors.New("no answer in time")

// readings are what gauges read from the database. A collection makes them all at the same time:
// one that hangs does not hold up the others.
type readings struct {
	log  *slog.Logger
	mu   sync.Mutex
	list []*source
	at   time.Time // of the latest ones
	said time.Time // when a failure was logged last
}

// source is where one of them comes from.
type source struct {
	of    string
	read  func(context.Context) (keep func(), err error)
	clear func()
	// done gets the result of a read that is under way. A connection that is dead may hold one up
	// for longer than its context.
	done chan result
}

type result struct {
	keep func()
	err  error
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
	all.list = append(all.list, &source{of: of, clear: func() { r.found = nil }, read: func(ctx context.Context) (func(), error) {
		found, err := read(ctx)
		return func() { r.found = found }, err
	}})
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
	begun := make([]bool, len(a.list))
	for i, s := range a.list {
		begun[i] = s.begin(ctx, a.log)
	}
	var failed []string
	var first error
	for i, s := range a.list {
		err := errNoAnswer // as it is for what still hangs since an earlier collection
		if begun[i] {
			err = s.await(ctx)
		}
		if err == nil {
			continue
		}
		s.clear()
		failed = append(failed, s.of)
		if first == nil {
			first = err
		}
	}
	a.at = time.Now()
	if first != nil && (a.said.IsZero() || time.Since(a.said) >= time.Minute) {
		a.log.Warn("cannot read gauges", slog.String("of", strings.Join(failed, ", ")), slog.Any("error", first))
		a.said = time.Now()
	}
}

// begin starts to read, unless an earlier read is still under way.
func (s *source) begin(ctx context.Context, log *slog.Logger) bool {
	select {
	case <-s.done: // it came too late
		s.done = nil
	default:
	}
	if s.done != nil {
		return false
	}
	done := make(chan result, 1)
	s.done = done
	go func() {
		var r result
		r.err = panics.Run(log, "reading gauges", func() (err error) {
			r.keep, err = s.read(ctx)
			return err
		})
		done <- r
	}()
	return true
}

// await keeps what is read, if it comes in time. The time may have passed while another was
// awaited.
func (s *source) await(ctx context.Context) error {
	var r result
	select {
	case r = <-s.done:
	default:
		select {
		case r = <-s.done:
		case <-ctx.Done():
			return errNoAnswer
		}
	}
	s.done = nil
	if r.err == nil {
		r.keep()
	}
	return r.err
}
