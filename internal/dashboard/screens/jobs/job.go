package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type jobData struct {
	Job      forebay.Job
	Why      []cause
	Attempts []attemptRow
	Left     int // attempts that are not shown
	Legend   bool
	Events   []forebay.Event
	Input    *payload   // nil: it was not asked for
	Result   *payload   // nil: there is none, or none that may be opened
	Tools    []toolCall // that the result asks for
	Reach    time.Duration
}

// payload is the beginning of an input or a result.
type payload struct {
	kit.Preview
	ID      string // of the page's element. The next generation has another
	Broken  bool   // it cannot be opened now
	Address string // of all of it
}

// payloadOf shows the beginning of an input or a result. The page of a browser that has it keeps
// it: it is not read again.
func payloadOf(r *kit.Request, job *forebay.Job, part string) (*payload, error) {
	p := payload{ID: fmt.Sprintf("%s-%d", part, job.Generation), Address: kit.Path("jobs", job.ID, part)}
	if r.Holds(p.ID) {
		return &p, nil
	}
	var err error
	p.Preview, err = r.Beginning("/v1" + p.Address)
	return &p, err
}

// resultOf shows the beginning of a result. The page does without one that cannot be opened: its
// storage may be down, or a redrive has taken it away meanwhile.
func resultOf(r *kit.Request, job *forebay.Job) *payload {
	if len(job.Result) > 0 && string(job.Result) != "null" {
		return &payload{Preview: kit.PreviewOf(job.Result), Address: kit.Path("jobs", job.ID, "result")}
	}
	p, err := payloadOf(r, job, "result")
	p.Broken = err != nil
	return p
}

// attemptRow is an attempt with its bar of the waterfall.
type attemptRow struct {
	forebay.Attempt
	Running bool
	Spans   []kit.Span
	Waited  time.Duration // before the call, since the attempt before or the start
	Waiting string        // for what: queue, throttle, retry delay
}

// maxAttempts is how many attempts a page shows: the latest.
const maxAttempts = 60

// show answers GET /jobs/{id}.
func show(r *kit.Request) error {
	id := r.PathValue("id")
	job, err := r.Client.Get(r.Context(), id)
	if err != nil {
		return err
	}
	attempts, err := r.Client.Attempts(r.Context(), id)
	if err != nil {
		return err
	}
	events, err := r.Client.EventsSoFar(r.Context(), id, 0)
	if err != nil {
		return err
	}
	d := jobData{Job: job, Events: events, Why: whyItWaits(r, &job), Tools: toolCallsOf(job.Result)}
	d.waterfall(attempts)
	if job.Status == forebay.StatusSucceeded && !job.ResultWithheld {
		d.Result = resultOf(r, &job)
	}
	if r.Query("show") == "input" {
		if d.Input, err = payloadOf(r, &job, "input"); err != nil {
			return err
		}
	}
	return pages.Render(r, "job", kit.Page{Title: "Job " + id, Section: "/jobs", Data: d, Commands: []string{
		"forebay jobs show " + id, "forebay jobs attempts " + id, "forebay jobs watch " + id,
	}})
}

// toolCall is a call of a tool that a model asks for, as OpenAI's chat completions have it.
type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// maxTools is how many calls of tools a page shows.
const maxTools = 50

// toolCallsOf returns the calls of tools in the result of a chat. Other results have none.
func toolCallsOf(result json.RawMessage) []toolCall {
	var chat struct {
		ToolCalls []toolCall `json:"tool_calls"`
	}
	if json.Unmarshal(result, &chat) != nil {
		return nil
	}
	return chat.ToolCalls[:min(len(chat.ToolCalls), maxTools)]
}

// waterfall draws the attempts of a job on one scale, from its submission until its end, or now.
func (d *jobData) waterfall(attempts []forebay.Attempt) {
	begin, end := d.Job.CreatedAt, time.Now()
	if d.Job.CompletedAt != nil {
		end = *d.Job.CompletedAt
	}
	last := begin
	rows := make([]attemptRow, 0, len(attempts))
	for i, a := range attempts {
		row := attemptRow{Attempt: a, Waiting: "queue", Running: a.Outcome == forebay.OutcomeRunning}
		if row.Running {
			row.FinishedAt = end
		}
		if i > 0 && attempts[i-1].Generation == a.Generation {
			switch attempts[i-1].Outcome {
			case forebay.OutcomeThrottled:
				row.Waiting = "throttle"
			case forebay.OutcomeRetried:
				row.Waiting = "retry delay"
			}
		}
		row.Waited = a.StartedAt.Sub(last)
		last = row.FinishedAt
		rows = append(rows, row)
	}
	if len(rows) > maxAttempts {
		d.Left = len(rows) - maxAttempts
		rows = rows[d.Left:]
		begin = rows[0].StartedAt.Add(-rows[0].Waited)
	}
	whole := max(end.Sub(begin), time.Millisecond)
	d.Reach = whole
	at := func(t time.Time) float64 { return float64(t.Sub(begin)) / float64(whole) }
	for i := range rows {
		row := &rows[i]
		from := row.StartedAt.Add(-row.Waited)
		kind := map[string]string{"queue": "wait", "throttle": "throttle", "retry delay": "delay"}[row.Waiting]
		waited := kit.Span{Kind: kind, Label: row.Waiting + ": " + kit.Duration(row.Waited), Start: at(from), End: at(row.StartedAt)}
		if delay := row.delayBefore(attempts); kind == "delay" && delay > 0 && delay < row.Waited {
			middle := from.Add(delay)
			waited.End, waited.Label = at(middle), "retry delay: "+kit.Duration(delay)
			row.Spans = append(row.Spans, waited, kit.Span{Kind: "wait", Label: "queue: " + kit.Duration(row.Waited-delay), Start: at(middle), End: at(row.StartedAt)})
		} else if row.Waited > 0 {
			row.Spans = append(row.Spans, waited)
		}
		tone := "call"
		switch row.Outcome {
		case forebay.OutcomeSucceeded:
			tone = "good"
		case forebay.OutcomeFailed, forebay.OutcomeRetried, forebay.OutcomeLost:
			tone = "bad"
		}
		row.Spans = append(row.Spans, kit.Span{Kind: tone, Label: "call: " + kit.Duration(row.FinishedAt.Sub(row.StartedAt)), Start: at(row.StartedAt), End: at(row.FinishedAt)})
	}
	d.Attempts, d.Legend = rows, len(rows) > 0
}

// delayBefore is the retry delay that the attempt before asked for.
func (a *attemptRow) delayBefore(attempts []forebay.Attempt) time.Duration {
	for _, before := range attempts {
		if before.Generation == a.Generation && before.Number == a.Number-1 && before.RetryDelaySeconds != nil {
			return time.Duration(*before.RetryDelaySeconds * float64(time.Second))
		}
	}
	return 0
}

// act changes a job and goes back to it.
func act(r *kit.Request, change func(ctx context.Context, id string) (forebay.Job, error), notice string) error {
	id := r.PathValue("id")
	if _, err := change(r.Context(), id); err != nil {
		return err
	}
	return r.Done(kit.Path("jobs", id), notice)
}

// cancel answers POST /jobs/{id}/cancel.
func cancel(r *kit.Request) error { return act(r, r.Client.Cancel, "Cancelled.") }

// redrive answers POST /jobs/{id}/redrive.
func redrive(r *kit.Request) error {
	return act(r, r.Client.Redrive, "Sent back as its next generation.")
}

// downloadInput answers GET /jobs/{id}/input.
func downloadInput(r *kit.Request) error {
	id := r.PathValue("id")
	return r.Download("input-"+id+".json", "/v1"+kit.Path("jobs", id, "input"), nil)
}

// downloadResult answers GET /jobs/{id}/result.
func downloadResult(r *kit.Request) error {
	id := r.PathValue("id")
	return r.Download("result-"+id+".json", "/v1"+kit.Path("jobs", id, "result"), nil)
}
