package db

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
)

// Part is a part of the store that can fail by itself, and whether it works.
type Part struct {
	Name string
	Err  error // a *forebay.Error; nil: it works
}

// How old an outcome may be that stands for now, and how long a part may take before it is said
// not to answer.
const (
	healthFresh    = time.Second
	healthPatience = 2 * time.Second
)

// health knows what last became of each part. Transactions report to it. It probes only a part
// that has not reported for a while, with at most one probe at a time.
type health struct {
	ctx     context.Context // until Close
	stop    context.CancelFunc
	probes  sync.WaitGroup
	parts   []*partHealth
	instant []func() Part // that cost nothing to ask
}

type partHealth struct {
	name  string
	probe func(context.Context) error
	mu    sync.Mutex
	at    time.Time // of the latest outcome
	err   error
	asked chan struct{} // closed when the probe under way has ended; nil: there is none
	since time.Time     // when that began
}

// note takes in what became of the part.
func (p *partHealth) note(err error) {
	p.mu.Lock()
	p.at, p.err = time.Now(), err
	p.mu.Unlock()
}

// noteTransaction takes in how a transaction ended, unless only what it was to do was wrong.
func (p *partHealth) noteTransaction(err error) {
	if p == nil {
		return
	}
	var refused *forebay.Error
	if err == nil || errors.As(err, &refused) && refused.Code != forebay.CodeInternal {
		p.note(err)
	}
}

// startHealth begins to watch the parts. It comes before the writers run.
func (s *DB) startHealth() {
	h := &s.health
	h.ctx, h.stop = context.WithCancel(context.Background())
	s.Writer.health = &partHealth{name: "writer", probe: s.Check}
	h.parts = []*partHealth{s.Writer.health, {name: "readers", probe: s.checkReaders}}
	if s.file == nil {
		return
	}
	h.instant = append(h.instant,
		func() Part { return Part{"files", s.file.Check()} },
		func() Part { return Part{"disk", sqlite.CheckDisk(filepath.Dir(s.file.Path))} })
}

// stopHealth ends the probes. Nobody may ask for another.
func (s *DB) stopHealth() {
	if s.health.stop != nil {
		s.health.stop()
		s.health.probes.Wait()
	}
}

func (s *DB) checkReaders(ctx context.Context) error {
	return s.Read(ctx, func(c driver.Conn) error { return c.Prep("SELECT 1 FROM probes LIMIT 1").Each(nil) })
}

// checkBeside has the second writer commit.
func (s *DB) checkBeside(ctx context.Context) error {
	_, err := Transact(ctx, s.Inserter, Op{Stage: StageSubmit}, func(*Tx) (struct{}, error) { return struct{}{}, nil })
	return err
}

// Health tells of each part whether it works now. It waits for two seconds at most and asks
// writers for little: while they have work, how that goes tells.
func (s *DB) Health(ctx context.Context) []Part {
	parts := make([]Part, len(s.health.parts), len(s.health.parts)+len(s.health.instant))
	var asking sync.WaitGroup
	for i, p := range s.health.parts {
		asking.Go(func() { parts[i] = Part{p.name, s.health.look(ctx, p)} })
	}
	asking.Wait()
	for _, look := range s.health.instant {
		parts = append(parts, look())
	}
	for i := range parts {
		parts[i].Err = forCaller(parts[i].Err)
	}
	return parts
}

// forCaller keeps what only a log may have out of the reason.
func forCaller(err error) error {
	var known *forebay.Error
	if err == nil || errors.As(err, &known) && known.Code != forebay.CodeInternal {
		return err
	}
	return forebay.Errorf(forebay.CodeUnavailable, "it fails").Caused(err)
}

var errNoAnswer = forebay.Errorf(forebay.CodeUnavailable, "it does not answer in time")

func (h *health) look(ctx context.Context, p *partHealth) error {
	p.mu.Lock()
	if p.asked == nil {
		if time.Since(p.at) < healthFresh {
			defer p.mu.Unlock()
			return p.err
		}
		h.ask(p)
	}
	asked, since := p.asked, p.since
	p.mu.Unlock()
	patience := time.NewTimer(healthPatience - time.Since(since))
	defer patience.Stop()
	select {
	case <-asked:
	case <-patience.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == asked && !p.at.After(since) {
		return errNoAnswer
	}
	return p.err
}

// ask begins a probe. The caller holds p.mu.
func (h *health) ask(p *partHealth) {
	done := make(chan struct{})
	p.asked, p.since = done, time.Now()
	h.probes.Go(func() {
		err := p.probe(h.ctx)
		p.mu.Lock()
		p.at, p.err, p.asked = time.Now(), err, nil
		p.mu.Unlock()
		close(done)
	})
}
