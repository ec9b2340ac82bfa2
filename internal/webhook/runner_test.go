package webhook

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// Ten tries over three days, as the Schedule says; then the dead letters.
func TestTenTriesOverThreeDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stub := newSource("evt_1"), &endpointStub{answer: always(500)}
		_, stop := start(t, q, stub, 4)
		<-time.After(10 * 24 * time.Hour)
		stop()
		if len(stub.calls) != MaxTries {
			t.Fatalf("%d tries", len(stub.calls))
		}
		for i, planned := range Schedule {
			if got := stub.calls[i+1].Sub(stub.calls[i]); got < planned*9/10 || got > planned*11/10 {
				t.Errorf("after try %d: %v, planned %v", i+1, got, planned)
			}
		}
		if over := stub.calls[9].Sub(stub.calls[0]); over < 68*time.Hour || over > 84*time.Hour {
			t.Errorf("over %v", over)
		}
		for i, id := range stub.ids {
			if id != "evt_1" {
				t.Errorf("try %d has the id %s", i+1, id)
			}
			if i > 0 && stub.signed[i] == stub.signed[i-1] {
				t.Errorf("tries %d and %d are signed at the same time", i, i+1)
			}
		}
		o := q.last("evt_1")
		if o.Verb != GiveUp || o.Reason != forebay.ReasonMaxDeliveries || o.Detail != "tried 10 times; the last: status 500" || o.Disable {
			t.Errorf("got %+v", o)
		}
	})
}

func TestScheduleIsThreeDays(t *testing.T) {
	var total time.Duration
	for _, d := range Schedule {
		total += d
	}
	if total != 75*time.Hour+35*time.Minute+5*time.Second || len(Schedule) != MaxTries-1 {
		t.Errorf("%d waits, %v together", len(Schedule), total)
	}
}

func TestDecide(t *testing.T) {
	failed := func(status int, after time.Duration) Attempt {
		return Attempt{Status: status, Failure: FailedStatus, RetryAfter: after}
	}
	for name, c := range map[string]struct {
		count    int
		a        Attempt
		verb     Verb
		min, max time.Duration
		reason   string
	}{
		"delivered":               {1, Attempt{Status: 204}, Complete, 0, 0, ""},
		"delivered at the last":   {10, Attempt{Status: 200}, Complete, 0, 0, ""},
		"first":                   {1, failed(500, 0), Retry, 4500 * time.Millisecond, 5500 * time.Millisecond, ""},
		"redirect":                {2, failed(301, 0), Retry, 270 * time.Second, 330 * time.Second, ""},
		"asked for longer":        {1, failed(503, time.Hour), Retry, time.Hour, time.Hour, ""},
		"asked for shorter":       {4, failed(503, time.Second), Retry, 108 * time.Minute, 132 * time.Minute, ""},
		"asked for ever":          {1, failed(429, 1000*time.Hour), Retry, 24 * time.Hour, 24 * time.Hour, ""},
		"last":                    {10, failed(429, time.Hour), GiveUp, 0, 0, forebay.ReasonMaxDeliveries},
		"delivered too often":     {11, Attempt{Failure: FailedTimeout}, GiveUp, 0, 0, forebay.ReasonMaxDeliveries},
		"gone":                    {1, failed(410, 0), GiveUp, 0, 0, ReasonEndpointGone},
		"stopped":                 {10, Attempt{Failure: FailedStopped}, Release, 0, 0, ""},
		"refused address":         {9, Attempt{Failure: FailedAddress}, Retry, 21 * time.Hour, 27 * time.Hour, ""},
		"a count out of the blue": {0, Attempt{Failure: FailedTLS}, Retry, 4 * time.Second, 6 * time.Second, ""},
	} {
		o := decide(c.count, c.a)
		if o.Verb != c.verb || o.Delay < c.min || o.Delay > c.max || o.Reason != c.reason || o.Disable != (c.a.Status == 410) || (o.Detail != "") != (o.Verb == GiveUp) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"0": 0, "30": 30 * time.Second, "": 0, "-1": 0, "1.5": 0, "99999999999999": 0, "soon": 0,
		at.Add(time.Minute).Format(http.TimeFormat): time.Minute, at.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(value, at); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

// An endpoint never gets more at once than it may, and other deliveries do not wait for a slow
// one.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stub := &endpointStub{answer: func(call int, r *http.Request) (int, http.Header) {
			if call == 0 {
				<-r.Context().Done() // for as long as it may take
			} else {
				<-time.After(time.Second)
			}
			return 200, nil
		}}
		q := newSource("a", "b", "c", "d", "e", "f", "g")
		_, stop := start(t, q, stub, 3)
		<-time.After(4 * time.Second)
		if stub.count() != 7 {
			t.Errorf("%d calls", stub.count())
		}
		<-time.After(SendTimeout)
		stop()
		if stub.most != 3 {
			t.Errorf("%d at once", stub.most)
		}
		if o := q.last(stub.ids[0]); o.Attempt.Failure != FailedTimeout || o.Verb != Retry {
			t.Errorf("the slow one: %+v", o)
		}
	})
}

func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stub := newSource("a"), &endpointStub{answer: always(http.StatusGone)}
		_, stop := start(t, q, stub, 1)
		<-time.After(time.Hour)
		stop()
		if o := q.last("a"); stub.count() != 1 || !o.Disable || o.Verb != GiveUp || o.Reason != ReasonEndpointGone {
			t.Errorf("%d calls, %+v", stub.count(), o)
		}
	})
}

// While nothing can be written nothing is sent: neither anew, nor after a delivery that cannot be
// recorded.
func TestStopsWhenWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := forebay.Errorf(forebay.CodeStorageFull, "the disk is full; nothing was stored")
		q := newSource("a", "b", "c", "d", "e", "f")
		var broken error
		q.fail = func() error { return broken }
		stub := &endpointStub{answer: func(call int, _ *http.Request) (int, http.Header) {
			if call == 1 {
				q.mu.Lock()
				broken = full
				q.mu.Unlock()
			}
			return 200, nil
		}}
		_, stop := start(t, q, stub, 2)
		<-time.After(20 * time.Second)
		if n := stub.count(); n > 3 {
			t.Errorf("%d calls, though nothing can be recorded since the second", n)
		}
		q.mu.Lock()
		broken = nil
		q.mu.Unlock()
		<-time.After(20 * time.Second)
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			if o := q.last(id); o.Verb != Complete {
				t.Errorf("%s: %+v", id, o)
			}
		}
		if stub.count() != 6 {
			t.Errorf("%d calls for 6 messages: an outcome was not tried again", stub.count())
		}
		stop()
	})
}

// A graceful stop lets deliveries end for a while; those that do not are given back uncounted.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stub := &endpointStub{answer: func(call int, r *http.Request) (int, http.Header) {
			select {
			case <-time.After(time.Duration(call) * 8 * time.Second):
			case <-r.Context().Done():
			}
			return 200, nil
		}}
		q := newSource("first")
		_, stop := start(t, q, stub, 2)
		synctest.Wait()
		q.put(&queued{message: Message{ID: "second"}})
		<-time.After(time.Second)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took != DefaultGrace {
			t.Errorf("stopping took %v", took)
		}
		if q.last("first").Verb != Complete || q.last("second").Verb != Release || q.received != 2 {
			t.Errorf("first %+v, second %+v", q.last("first"), q.last("second"))
		}
	})
}

// A stop does not wait long for a database that cannot be written to.
func TestStopWhileWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSource("a")
		var broken error
		q.fail = func() error { return broken }
		stub := &endpointStub{answer: func(int, *http.Request) (int, http.Header) {
			q.mu.Lock()
			defer q.mu.Unlock()
			broken = forebay.Errorf(forebay.CodeUnavailable, "down")
			return 200, nil
		}}
		_, stop := start(t, q, stub, 1)
		<-time.After(time.Second)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > DefaultGrace+giveBackFor {
			t.Errorf("stopping took %v", took)
		}
	})
}

// A lock that was lost is no reason to stop, and neither is the end of the endpoint's source an
// error.
func TestSettleLockLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSource("a", "b")
		calls := 0
		q.fail = func() error {
			if calls++; calls == 2 {
				return forebay.ErrLockLost
			}
			return nil
		}
		stub := &endpointStub{answer: always(200)}
		_, stop := start(t, q, stub, 1)
		<-time.After(time.Second)
		if stub.count() != 2 || q.last("a").Verb != "" || q.last("b").Verb != Complete {
			t.Errorf("%d calls, b %+v", stub.count(), q.last("b"))
		}
		q.mu.Lock()
		q.fail = func() error { return &forebay.Error{Code: forebay.CodeUnknownQueue, Message: "gone"} }
		q.mu.Unlock()
		q.put(&queued{message: Message{ID: "c"}})
		synctest.Wait()
		stop()
		if stub.count() != 2 {
			t.Errorf("%d calls after the source has gone", stub.count())
		}
	})
}

func TestLogHidesSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		q := newSource("a")
		e := endpointAt("https://8.8.8.8/hook/urlsecret")
		s := &Sender{transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") })}
		r := NewRunner(e, q, s, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), DefaultGrace)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		<-time.After(10 * 24 * time.Hour)
		cancel()
		<-done
		for _, never := range []string{"urlsecret", "whsec_", "MfKQ9r8"} {
			if strings.Contains(log.String(), never) {
				t.Errorf("the log holds %s:\n%s", never, log.String())
			}
		}
		if !strings.Contains(log.String(), "webhook=hook") || !strings.Contains(log.String(), "given up") || strings.Count(log.String(), "try=") != MaxTries {
			t.Errorf("the log:\n%s", log.String())
		}
	})
}
