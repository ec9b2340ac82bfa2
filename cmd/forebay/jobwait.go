package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/sleep"
)

func (a jobCommands) watch() *cobra.Command {
	var after int64
	var deltas bool
	c := a.APICommand(&cobra.Command{
		Use: "watch JOB_ID", Short: "Follow a job's events until it has ended",
		Long: "Follow a job's events until it has ended. The exit code is 0 only if it succeeded.",
	}, func(c *command.Call) error {
		id := c.Args[0]
		if _, err := c.API.Get(c.Ctx, id); err != nil {
			return err
		}
		patient, err := c.Patient()
		if err != nil {
			return err
		}
		var delta func(forebay.Delta)
		shown := deltaPrinter{call: c}
		if deltas {
			delta = shown.print
		}
		for e, err := range patient.EventsAndDeltas(c.Ctx, id, after, delta) {
			if err != nil {
				return err
			}
			if err := shown.endLine(); err != nil {
				return err
			}
			if err := printEvent(c, e); err != nil {
				return err
			}
		}
		job, err := c.API.Get(c.Ctx, id)
		if err != nil {
			return err
		}
		return ended(job)
	})
	c.Flags().Int64Var(&after, "after", 0, "begin after the event with this number")
	c.Flags().BoolVar(&deltas, "deltas", false, "also write what the running call answers, as it comes; the result decides")
	return c
}

// deltaPrinter writes deltas: in a table their texts, else each in a line of JSON.
type deltaPrinter struct {
	call    *command.Call
	at      forebay.Delta // the latest, with its text left out
	end     int           // where its text ended
	midLine bool
}

func (p *deltaPrinter) print(d forebay.Delta) {
	if p.call.Output != command.OutputTable {
		_ = command.WriteJSON(p.call.Out, d, "") // the next event meets the error too
		return
	}
	if d.Generation != p.at.Generation || d.Attempt != p.at.Attempt {
		_ = p.endLine()
		p.end = 0
	}
	text := d.Text
	switch over := p.end - d.Offset; {
	case over >= len(text):
		return // it came before
	case over > 0:
		text = text[over:]
	case over < 0:
		text = "[…]" + text
	}
	p.at, p.end, p.midLine = forebay.Delta{Generation: d.Generation, Attempt: d.Attempt}, d.Offset+len(d.Text), true
	_, _ = fmt.Fprint(p.call.Out, command.CleanLines(text))
}

// endLine begins a new line after texts.
func (p *deltaPrinter) endLine() error {
	if !p.midLine {
		return nil
	}
	p.midLine = false
	_, err := fmt.Fprintln(p.call.Out)
	return err
}

func printEvent(c *command.Call, e forebay.Event) error {
	if c.Output != command.OutputTable {
		return command.WriteJSON(c.Out, e, "")
	}
	line := fmt.Sprintf("%s  %-16s", e.At.In(c.Zone).Format("15:04:05.000"), e.Type)
	if e.Attempt > 0 {
		line += fmt.Sprintf(" attempt %d", e.Attempt)
	}
	if e.ErrorCode != "" {
		line += " " + e.ErrorCode
	}
	if e.RetryDelaySeconds != nil {
		line += " again in " + command.Seconds(e.RetryDelaySeconds)
	}
	return c.Say("%s", strings.TrimRight(line, " "))
}

const (
	// firstPoll is how long the command waits before it says what the job waits for.
	firstPoll = 2 * time.Second
	// laterPolls is how often the command checks that again.
	laterPolls = 10 * time.Second
)

// awaitJob waits for the end of a job. Meanwhile it writes to standard error what the job waits
// for.
func awaitJob(c *command.Call, api *client.Client, id string) (forebay.Job, error) {
	said := ""
	for patience := firstPoll; ; patience = laterPolls {
		begun := time.Now()
		job, err := api.Poll(c.Ctx, id, patience)
		if err != nil || job.Status.Terminal() {
			return job, err
		}
		if why := waitsFor(job); why != said {
			fmt.Fprintf(c.Err, "forebay: %s %s\n", id, why)
			said = why
		}
		// A server that is shutting down ends long polls early. Do not ask it in a tight loop.
		if time.Since(begun) < time.Second && sleep.For(c.Ctx, time.Second) != nil {
			return job, c.Ctx.Err()
		}
	}
}

// waitReasons are the texts of the reasons for which a job waits.
var waitReasons = map[forebay.WaitReason]string{
	forebay.WaitQuota:       "waits for the provider's quota",
	forebay.WaitBreaker:     "waits for its deployment, whose circuit breaker is open (forebay deployments list)",
	forebay.WaitBudget:      "waits for its budget (forebay tenants show)",
	forebay.WaitPaused:      "waits, for its queue, tenant or deployment is paused",
	forebay.WaitConcurrency: "waits until fewer calls are under way",
	forebay.WaitSession:     "waits for another job of its session",
	forebay.WaitSchedule:    "waits for its time",
	forebay.WaitWorker:      "waits for a worker that knows its task",
}

// waitsFor says what a job waits for and what went wrong before. The job has not ended.
func waitsFor(job forebay.Job) string {
	why := "is " + string(job.Status)
	if job.WaitingFor != nil {
		why = cmp.Or(waitReasons[*job.WaitingFor], "waits for "+string(*job.WaitingFor))
	}
	if job.Error != nil {
		why += fmt.Sprintf("; the last attempt: %s: %s", job.Error.Code, job.Error.Message)
	}
	return why
}
