package openai

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// batches are the commands about batches of OpenAI's API.
type batches struct{ *command.App }

// Batches returns the commands about batches.
func Batches(app *command.App) []*cobra.Command {
	a := batches{app}
	return []*cobra.Command{a.create(), a.list(), a.show(), a.results(), a.cancel()}
}

func (a batches) list() *cobra.Command {
	return command.Page(a.App, &cobra.Command{Use: "list", Short: "List batches of OpenAI's API, newest first"},
		func(c *command.Call, pageSize int) iter.Seq2[forebay.Batch, error] {
			return c.API.Batches(c.Ctx, pageSize)
		},
		func(b forebay.Batch) []command.Field {
			return []command.Field{
				{"BATCH", b.ID}, {"STATUS", string(b.Status)}, {"LINES", command.Count(b.Counts.Total)}, {"ANSWERED", command.Count(b.Counts.Completed)},
				{"FAILED", command.Count(b.Counts.Failed)}, {"MODEL", b.Model}, {"CREATED", a.When(time.Unix(b.CreatedAt, 0))},
			}
		})
}

func (a batches) show() *cobra.Command {
	return command.Show(a.App, &cobra.Command{Use: "show BATCH", Short: "Show a batch of OpenAI's API"},
		command.OfArgument((*client.Client).Batch), a.fields)
}

func (a batches) cancel() *cobra.Command {
	return command.Show(a.App, &cobra.Command{Use: "cancel BATCH", Short: "Cancel a batch of OpenAI's API; what was answered stays"},
		command.OfArgument((*client.Client).CancelBatch), a.fields)
}

func (a batches) fields(b forebay.Batch) []command.Field {
	fields := []command.Field{
		{"batch", b.ID}, {"status", string(b.Status)}, {"endpoint", b.Endpoint}, {"model", b.Model},
		{"lines", command.Count(b.Counts.Total)}, {"answered", command.Count(b.Counts.Completed)}, {"failed", command.Count(b.Counts.Failed)},
		{"input", b.InputFile}, {"output", b.OutputFile}, {"errors", b.ErrorFile},
		{"created", a.When(time.Unix(b.CreatedAt, 0))}, {"window closes", a.When(time.Unix(b.ExpiresAt, 0))},
	}
	if ended := max(b.CompletedAt, b.FailedAt, b.ExpiredAt, b.CancelledAt); ended > 0 {
		fields = append(fields, command.Field{"ended", a.When(time.Unix(ended, 0))})
	}
	if b.Usage != nil {
		fields = append(fields, command.Field{"tokens", fmt.Sprintf("%d in, %d out", b.Usage.InputTokens, b.Usage.OutputTokens)})
	}
	if b.Errors != nil {
		for _, e := range b.Errors.Data {
			fields = append(fields, command.Field{fmt.Sprint("line ", e.Line), e.Code + ": " + e.Message})
		}
	}
	return fields
}

func (a batches) create() *cobra.Command {
	n := forebay.NewBatch{}
	var wait bool
	c := a.APICommand(&cobra.Command{
		Use: "create FILE.jsonl", Short: "Make a batch of OpenAI's API of a file's lines",
		Long: `Upload a file and make a batch of its lines, as OpenAI's API takes them:
{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":"chat",…}}`,
		Example: `  forebay batch create lines.jsonl --wait
  forebay batch results batch_… > answers.jsonl`,
	}, func(c *command.Call) error {
		file, err := os.Open(c.Args[0])
		if err != nil {
			return command.Usagef("cannot open %s: %s", c.Args[0], command.Cause(err))
		}
		defer file.Close()
		if n.InputFile, err = c.API.UploadBatchFile(c.Ctx, filepath.Base(c.Args[0]), file); err != nil {
			return err
		}
		b, err := c.API.CreateBatch(c.Ctx, n)
		if err == nil && wait {
			b, err = command.Await(c, (*client.Client).WaitBatch, b.ID)
		}
		if err != nil {
			return err
		}
		if err := c.PrintOne(b, a.fields(b)); err != nil {
			return err
		}
		if b.Status.Terminal() && b.Status != forebay.BatchCompleted {
			return command.ExitError(command.ExitFailed)
		}
		return nil
	})
	flags := c.Flags()
	flags.StringVar(&n.Endpoint, "endpoint", "/v1/chat/completions", "endpoint that every line calls")
	flags.StringVar(&n.Window, "window", "24h", "how long the batch may take, in whole hours")
	command.MetadataFlag(flags, &n.Metadata, " to keep with the batch")
	flags.BoolVar(&wait, "wait", false, "wait until the batch is over")
	return c
}

func (a batches) results() *cobra.Command {
	var failures bool
	c := a.APICommand(&cobra.Command{
		Use: "results BATCH", Short: "Write the answers of a batch of OpenAI's API to standard output",
		Example: `  forebay batch results batch_… > answers.jsonl
  forebay batch results batch_… --errors`,
	}, func(c *command.Call) error {
		b, err := c.API.Batch(c.Ctx, c.Args[0])
		if err != nil {
			return err
		}
		file := b.OutputFile
		if failures {
			file = b.ErrorFile
		}
		switch {
		case file == "" && !b.Status.Terminal():
			return command.ExitError(command.ExitConflict, "the batch is "+string(b.Status)+"; its results are written when it is over")
		case file == "":
			return nil // there are none
		}
		content, err := c.API.FileContent(c.Ctx, file)
		if err != nil {
			return err
		}
		defer content.Close()
		_, err = io.Copy(c.Out, content)
		return err
	})
	c.Flags().BoolVar(&failures, "errors", false, "write the lines without an answer instead")
	return c
}
