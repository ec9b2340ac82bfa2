package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// While the database hangs, a collection takes as long as one reading may. It has what can be
// read. The log has one line a minute.
func TestReadingsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		all := &readings{log: slog.New(slog.NewTextHandler(&log, nil))}
		hang := func(ctx context.Context) ([]int, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		over := make(chan struct{})
		dead := func(context.Context) ([]int, error) { // on a connection that does not notice
			<-over
			return []int{1, 2, 3}, nil
		}
		var list []*reading[int]
		for range 5 {
			list = append(list, newReading(all, "hanging", hang))
		}
		last := newReading(all, "dead", dead)
		list = append(list, last, newReading(all, "working", func(context.Context) ([]int, error) { return []int{1}, nil }))
		collect := func() (found int, took time.Duration) {
			began := time.Now()
			for _, r := range list {
				found += len(r.get())
			}
			return found, time.Since(began)
		}
		for range 3 {
			if found, took := collect(); found != 1 || took != readTimeout {
				t.Errorf("a collection found %d and took %s, want 1 and %s", found, took, readTimeout)
			}
			<-time.After(readAge)
		}
		if n := strings.Count(log.String(), "cannot read gauges"); n != 1 || !strings.Contains(log.String(), "hanging, hanging") {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
		<-time.After(time.Minute)
		collect()
		if n := strings.Count(log.String(), "cannot read gauges"); n != 2 {
			t.Errorf("after a minute %d lines:\n%s", n, log.String())
		}
		close(over)
		synctest.Wait()
		<-time.After(readAge)
		if found, _ := collect(); found != 4 || len(last.get()) != 3 {
			t.Errorf("after all %d were found, want 4", found)
		}
	})
}

// A scraper that leaves makes an error for each metric, and one line.
func TestScrapersThatLeave(t *testing.T) {
	var log bytes.Buffer
	e := scrapeErrors{log: slog.New(slog.NewJSONHandler(&log, nil))}
	for range 20 {
		e.Println("error encoding and sending metric family:", errors.Join(io.ErrClosedPipe))
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `family: `+io.ErrClosedPipe.Error()) {
		t.Errorf("logged:\n%s", text)
	}
}
