package oidc

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// unknownActor stands in the audit log for somebody whom nobody vouches for. Names of people have
// a "#", so it is none.
const unknownActor = forebay.PersonPrefix + "unknown"

// share bounds how often something is written.
type share struct {
	burst float64
	every time.Duration // how long until one more may be written

	left   float64
	at     time.Time
	silent int // how many were not written since the last one that was
}

// take reports whether one more may be written, and how many were not before it.
func (s *share) take(now time.Time) (silent int, ok bool) {
	if s.at.IsZero() {
		s.left = s.burst
	} else if passed := now.Sub(s.at); passed > 0 {
		s.left = min(s.burst, s.left+float64(passed)/float64(s.every))
	}
	s.at = now
	if s.left < 1 {
		s.silent++
		return 0, false
	}
	s.left--
	silent, s.silent = s.silent, 0
	return silent, true
}

// refusals bounds what refused sign-ins write. People whom the provider vouches for have a share
// that strangers cannot use up.
type refusals struct {
	mu        sync.Mutex
	strangers share
	people    share
}

const (
	strangersBurst = 10
	strangersEvery = time.Minute
	peopleBurst    = 60
	peopleEvery    = 10 * time.Second
	failuresBurst  = 10
	failuresEvery  = 10 * time.Second
)

func newRefusals() refusals {
	return refusals{strangers: share{burst: strangersBurst, every: strangersEvery}, people: share{burst: peopleBurst, every: peopleEvery}}
}

// failures bounds what failures of a provider write to the log.
type failures struct {
	logger *slog.Logger
	mu     sync.Mutex
	share  share
}

func newFailures(logger *slog.Logger) *failures {
	return &failures{logger: logger, share: share{burst: failuresBurst, every: failuresEvery}}
}

// log notes a failure of the provider, unless there were too many of them.
func (f *failures) log(what string, err error) {
	f.mu.Lock()
	silent, ok := f.share.take(time.Now())
	f.mu.Unlock()
	if ok {
		f.logger.Error("the OpenID Connect provider fails", slog.String("what", what), slog.String("error", kindOf(err)), slog.Int("not_recorded", silent))
	}
}

// refusal is why a sign-in was refused.
type refusal struct {
	Reason  string `json:"reason"`
	Subject string `json:"subject,omitempty"` // whom the provider vouches for
	Silent  int    `json:"not_recorded,omitempty"`
}

// refused notes a refusal in the log and the audit log. actor is "" for a stranger.
func (c *Client) refused(ctx context.Context, actor string, r refusal) {
	c.refusals.mu.Lock()
	s := &c.refusals.people
	if actor == "" {
		actor, s = unknownActor, &c.refusals.strangers
	}
	silent, ok := s.take(time.Now())
	c.refusals.mu.Unlock()
	if !ok {
		return
	}
	r.Silent = silent
	c.options.Logger.Warn("a sign-in to the dashboard was refused", slog.String("actor", actor), slog.String("reason", r.Reason), slog.Int("not_recorded", silent))
	detail, err := json.Marshal(r)
	if err == nil {
		// The browser may have gone.
		err = c.options.Audit.Record(context.WithoutCancel(ctx), audit.Act{Actor: actor, Action: "refuse-sign-in", Target: "dashboard", Detail: string(detail)})
	}
	if err != nil {
		c.options.Logger.Error("the audit log lacks a refused sign-in", slog.Any("error", err))
	}
}
