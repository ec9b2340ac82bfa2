package flows

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// maxRows is how many rows a chart has.
const maxRows = 150

// row is something that an instance has begun: an activity, a timer, another instance.
type row struct {
	Kind, Name string
	State      string // for a badge
	Child      string // id of the instance that it is
	Inner      bool   // it belongs to the child that is shown
	Reason     string
	Start, End time.Time
	Open       bool // it has no end yet: End is now, or the instance's
	Attempts   []forebay.ActivityAttempt
	Spans      []kit.Span

	parts []part
}

// part is a part of a row, in time.
type part struct {
	kind, label string
	from, to    time.Time
}

// Waited is how long nothing ran of it.
func (r row) Waited() time.Duration { return r.sum("wait", "delay") }

// Ran is how long it ran.
func (r row) Ran() time.Duration { return r.sum("run", "bad", "throttle") }

func (r row) sum(kinds ...string) (d time.Duration) {
	for _, p := range r.parts {
		if slices.Contains(kinds, p.kind) {
			d += p.to.Sub(p.from)
		}
	}
	return d
}

// cut is a stretch of time in which nothing ran, and which a chart leaves out.
type cut struct {
	From, To time.Time
}

// chart is what happened in an instance, by time.
type chart struct {
	Rows     []row
	Left     int // earlier rows, which are not shown
	Cuts     []cut
	From, To time.Time
}

// Label describes a row to those who do not see the drawing.
func (c chart) Label(r row) string {
	return fmt.Sprintf("%s %s: waited %s, ran %s", r.Kind, kit.Clean(r.Name), kit.Duration(r.Waited()), kit.Duration(r.Ran()))
}

// rowsOf returns the rows of a history. It is a summary: the event that ended a call stands for
// the call. end is when an open row ends for now.
func rowsOf(events []forebay.OrchestrationEvent, attempts []forebay.ActivityAttempt, end time.Time) (rows []row) {
	for _, e := range events {
		r := row{Name: cmp.Or(e.Function, e.Name), Start: e.Timestamp, End: e.Timestamp, Child: e.InstanceID, Reason: e.Reason}
		if e.ScheduledAt != nil {
			r.Start = *e.ScheduledAt
		}
		if e.Failure != nil {
			r.Reason = e.Failure.Type + ": " + e.Failure.Message
		}
		switch e.Type {
		case "TaskScheduled", "TaskCompleted", "TaskFailed":
			r.Kind = "activity"
			r.finish(e.Type, end)
			r.activity(e.EventID, attempts)
		case "SubOrchestrationInstanceCreated", "SubOrchestrationInstanceCompleted", "SubOrchestrationInstanceFailed":
			r.Kind = "sub-orchestration"
			r.finish(e.Type, end)
			r.parts = []part{{r.tone(), "from its start to its end", r.Start, r.End}}
		case "TimerCreated", "TimerFired":
			r.timer(e, end)
		case "EventRaised":
			if received(rows, e) {
				continue
			}
			r.Kind, r.State = "event", "received"
			r.parts = []part{{"mark", "came", r.Start, r.End}}
		case "ExecutionSuspended", "ExecutionResumed", "ExecutionTerminated":
			r.Kind, r.Name, r.State = "instance", strings.ToLower(strings.TrimPrefix(e.Type, "Execution")), "–"
			r.parts = []part{{"mark", r.Name, r.Start, r.End}}
		default:
			continue
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.Start.Compare(b.Start) })
	return rows
}

// timer makes a timer of a row. One with a name limits the wait for the event of that name.
func (r *row) timer(e forebay.OrchestrationEvent, end time.Time) {
	r.Kind = "timer"
	if r.Name != "" {
		r.Kind = "wait for event"
	}
	label := "waits"
	if e.FireAt != nil {
		label = "until " + e.FireAt.UTC().Format(time.DateTime)
		r.End = later(r.End, *e.FireAt) // an event that tells of a timer may bear the time of its start
	}
	if r.finish(e.Type, end); !r.Open && r.Name != "" {
		r.State = "expired"
	}
	r.parts = []part{{"wait", label, r.Start, r.End}}
}

// received ends the first row that waits for an event. It reports whether there was one.
func received(rows []row, e forebay.OrchestrationEvent) bool {
	for i := range rows {
		r := &rows[i]
		if r.Kind == "wait for event" && r.Open && strings.EqualFold(r.Name, e.Name) && !r.Start.After(e.Timestamp) {
			r.State, r.Open, r.End = "received", false, e.Timestamp
			r.parts[0].to = e.Timestamp
			return true
		}
	}
	return false
}

// finish sets the state by the type of the event.
func (r *row) finish(event string, end time.Time) {
	switch {
	case strings.HasSuffix(event, "Completed"), event == "TimerFired":
		r.State = "succeeded"
	case strings.HasSuffix(event, "Failed"):
		r.State = "failed"
	default:
		r.State, r.Open, r.End = "waiting", true, later(r.Start, end)
	}
}

func (r *row) tone() string {
	if r.State == "failed" {
		return "bad"
	}
	return "run"
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// activity parts an activity into what it waited and what it ran, by its attempts. Those of an
// earlier run may have the same number, so their times must fit.
func (r *row) activity(id int, attempts []forebay.ActivityAttempt) {
	const apart = time.Second // clocks of processes differ
	for _, a := range attempts {
		fits := a.EventID == id && (a.Name == "" || a.Name == r.Name) && !a.StartedAt.Before(r.Start.Add(-apart)) && !a.StartedAt.After(r.End.Add(apart))
		if fits {
			r.Attempts = append(r.Attempts, a)
		}
	}
	slices.SortFunc(r.Attempts, func(a, b forebay.ActivityAttempt) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Number, b.Number))
	})
	at, gap := r.Start, "wait"
	for _, a := range r.Attempts {
		begun, ended := later(at, a.StartedAt), later(at, a.FinishedAt)
		if begun.After(at) {
			r.parts = append(r.parts, part{gap, gaps[gap], at, begun})
		}
		r.parts = append(r.parts, part{outcomes[a.Outcome], fmt.Sprintf("attempt %d %s", a.Number, a.Outcome), begun, later(begun, ended)})
		at, gap = later(begun, ended), "delay"
	}
	switch {
	case r.Open:
		if len(r.Attempts) > 0 {
			r.State = "retrying"
		}
		r.parts = append(r.parts, part{"wait", "waits, or runs: an attempt is known once it has ended", at, r.End})
	case len(r.Attempts) == 0:
		r.parts = append(r.parts, part{r.tone(), "its attempts are not known", r.Start, r.End})
	case r.End.After(at):
		r.parts = append(r.parts, part{"wait", "until the orchestrator knew", at, r.End})
	}
}

var gaps = map[string]string{"wait": "scheduled, not begun", "delay": "waits for the next attempt"}

// outcomes are the classes of attempts.
var outcomes = map[string]string{"succeeded": "run", "retried": "throttle", "failed": "bad", "lost": "throttle", "cut_off": "throttle"}

// draw makes a chart of rows. Long times in which nothing ran are cut.
func draw(rows []row) chart {
	c := chart{Left: max(0, len(rows)-maxRows)}
	rows = rows[c.Left:]
	if len(rows) == 0 {
		return c
	}
	var bounds []time.Time
	for _, r := range rows {
		bounds = append(bounds, r.Start, r.End)
		for _, p := range r.parts {
			bounds = append(bounds, p.from, p.to)
		}
	}
	slices.SortFunc(bounds, time.Time.Compare)
	bounds = slices.CompactFunc(bounds, time.Time.Equal)
	c.From, c.To = bounds[0], bounds[len(bounds)-1]
	s := newScale(bounds, rows)
	c.Cuts = s.cuts
	for i := range rows {
		r := &rows[i]
		for _, p := range r.parts {
			r.Spans = append(r.Spans, kit.Span{Kind: p.kind, Label: fmt.Sprintf("%s, %s", p.label, kit.Duration(p.to.Sub(p.from))), Start: s.at(p.from), End: s.at(p.to)})
		}
		for _, gone := range s.cuts {
			r.Spans = append(r.Spans, kit.Span{Kind: "cut", Label: kit.Duration(gone.To.Sub(gone.From)) + " cut", Start: s.at(gone.From) + cutShare/4, End: s.at(gone.To) - cutShare/4})
		}
	}
	c.Rows = rows
	return c
}

// scale says where times stand on a chart.
type scale struct {
	bounds []time.Time
	places []float64 // of the bounds, from 0 to 1
	cuts   []cut
}

const (
	leastCut = 10 * time.Second // shorter stretches stay
	cutShare = 0.03             // of the rest of the width, for each cut
	cutAbove = 0.2              // of the time in which something ran
)

func newScale(bounds []time.Time, rows []row) *scale {
	s := &scale{bounds: bounds}
	widths := make([]float64, max(0, len(bounds)-1))
	idle := make([]bool, len(widths))
	busy, kept := 0.0, 0.0
	for i := range widths {
		widths[i] = bounds[i+1].Sub(bounds[i]).Seconds()
		if idle[i] = !runs(rows, bounds[i], bounds[i+1]); !idle[i] {
			busy += widths[i]
		}
	}
	for i := range widths {
		if idle[i] = idle[i] && widths[i] >= max(leastCut.Seconds(), cutAbove*busy); idle[i] {
			s.cuts = append(s.cuts, cut{bounds[i], bounds[i+1]})
			continue
		}
		kept += widths[i]
	}
	if kept == 0 { // nothing but waiting: then it is what there is to see
		s.cuts = nil
		for i := range widths {
			idle[i], widths[i] = false, bounds[i+1].Sub(bounds[i]).Seconds()
			kept += widths[i]
		}
	}
	total := 0.0
	for i := range widths {
		if idle[i] {
			widths[i] = kept * cutShare
		}
		total += widths[i]
	}
	if total == 0 {
		total = 1
	}
	s.places = make([]float64, len(bounds))
	for i, w := range widths {
		s.places[i+1] = s.places[i] + w/total
	}
	return s
}

// runs reports whether anything runs in a stretch between two bounds.
func runs(rows []row, from, to time.Time) bool {
	for _, r := range rows {
		for _, p := range r.parts {
			if p.kind != "wait" && p.kind != "delay" && p.kind != "mark" && p.from.Before(to) && p.to.After(from) {
				return true
			}
		}
	}
	return false
}

// at is the place of a time that is one of the bounds.
func (s *scale) at(t time.Time) float64 {
	i, _ := slices.BinarySearchFunc(s.bounds, t, time.Time.Compare)
	return s.places[min(i, len(s.places)-1)]
}

// Draw draws a row.
func (c chart) Draw(r row) template.HTML { return kit.Timeline(c.Label(r), r.Spans) }
