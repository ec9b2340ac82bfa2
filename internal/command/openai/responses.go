// Package openai has the commands about batches and kept responses of OpenAI's API.
package openai

import (
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// responses are the commands about responses.
type responses struct{ *command.App }

// Responses returns the group of the commands about responses.
func Responses(app *command.App) *cobra.Command {
	a := responses{app}
	return command.Group(&cobra.Command{
		Use: "response", Short: "Responses of OpenAI's API that are kept",
		Long: "See, cancel and delete the responses of OpenAI's API that the server keeps. Those with store:\nfalse are not kept.",
	}, a.list(), a.show(), a.cancel(), a.delete())
}

func (a responses) list() *cobra.Command {
	var f client.ResponseFilter
	var background bool
	var statuses []string
	c := &cobra.Command{
		Use: "list", Short: "List responses, newest first",
		Example: "  forebay response list --status failed\n  forebay response list --background -o jsonl",
	}
	command.StatusFlag(c.Flags(), &statuses, forebay.ResponseStatuses)
	c.Flags().BoolVar(&background, "background", false, "only those made in the background, or with =false only the others")
	return command.Page(a.App, c, func(c *command.Call, pageSize int) iter.Seq2[forebay.Response, error] {
		if c.Flags.Changed("background") {
			f.Background = &background
		}
		if f.Limit = pageSize; len(statuses) == 0 {
			statuses = []string{""} // all
		}
		return func(yield func(forebay.Response, error) bool) {
			if len(statuses) > 1 {
				yield(forebay.Response{}, command.Usagef("--status takes one status of a response at a time"))
				return
			}
			f.Status = statuses[0]
			c.API.AllResponses(c.Ctx, f)(yield)
		}
	}, func(r forebay.Response) []command.Field {
		return []command.Field{
			{"RESPONSE", r.ID}, {"STATUS", r.Status}, {"MODEL", r.Model}, {"BACKGROUND", command.IfTrue(r.Background, "yes")},
			{"CREATED", a.seconds(r.CreatedAt)}, {"ENDED", a.seconds(r.CompletedAt)}, {"JOB", r.JobID}, {"PREVIOUS", r.Previous},
		}
	})
}

// seconds shows a time as OpenAI's API has it; 0: none.
func (a responses) seconds(at int64) string {
	if at == 0 {
		return ""
	}
	return a.When(time.Unix(at, 0))
}

// object is what the table of one response has from OpenAI's object.
type object struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Model     string `json:"model"`
	CreatedAt int64  `json:"created_at"`
	Previous  string `json:"previous_response_id"`
	Error     *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
	Output []struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Content []struct {
			Text    string `json:"text"`
			Refusal string `json:"refusal"`
		} `json:"content"`
	} `json:"output"`
}

// maxText is how many characters of a text a table shows.
const maxText = 400

func (a responses) fields(raw json.RawMessage) ([]command.Field, error) {
	var r object
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	fields := []command.Field{
		{"response", r.ID}, {"status", r.Status}, {"model", r.Model}, {"created", a.seconds(r.CreatedAt)}, {"previous", r.Previous},
	}
	if r.Error != nil {
		fields = append(fields, command.Field{"error", command.Shorten(r.Error.Code+": "+r.Error.Message, maxText)})
	}
	if r.Incomplete != nil {
		fields = append(fields, command.Field{"incomplete", r.Incomplete.Reason})
	}
	if r.Usage != nil {
		fields = append(fields, command.Field{"tokens", fmt.Sprintf("%d in, %d out", r.Usage.Input, r.Usage.Output)})
	}
	for _, item := range r.Output {
		if item.Type != "message" {
			fields = append(fields, command.Field{item.Type, item.Name})
		}
		for _, part := range item.Content {
			fields = append(fields, command.Field{"text", command.Shorten(part.Text+part.Refusal, maxText)})
		}
	}
	return fields, nil
}

// print prints a response in the form of OpenAI's API, or what a table has of it.
func (a responses) print(raw json.RawMessage, more ...command.Field) error {
	fields, err := a.fields(raw)
	if err != nil {
		return err
	}
	return a.PrintOne(raw, append(fields, more...))
}

func (a responses) show() *cobra.Command {
	return a.APICommand(&cobra.Command{
		Use: "show RESPONSE", Short: "Show a response",
		Long: "Show a response. With -o json it is all that OpenAI's API has of it.",
	}, func(c *command.Call) error {
		listed, err := c.API.Responses(c.Ctx, client.ResponseFilter{ID: c.Args[0]})
		if err != nil {
			return err
		}
		raw, err := c.API.Response(c.Ctx, c.Args[0])
		if err != nil {
			return err
		}
		var more []command.Field
		if len(listed.Data) > 0 {
			more = []command.Field{{"job", listed.Data[0].JobID}, {"ended", a.seconds(listed.Data[0].CompletedAt)}}
		}
		return a.print(raw, more...)
	})
}

func (a responses) cancel() *cobra.Command {
	return a.APICommand(&cobra.Command{Use: "cancel RESPONSE", Short: "Cancel a response that is made in the background, unless it has ended"},
		func(c *command.Call) error {
			raw, err := c.API.CancelResponse(c.Ctx, c.Args[0])
			if err != nil {
				return err
			}
			return a.print(raw)
		})
}

func (a responses) delete() *cobra.Command {
	return a.APICommand(&cobra.Command{
		Use: "delete RESPONSE", Short: "Delete a response with what was asked and answered",
		Long: "Delete a response with what was asked and answered. One that is being made is cancelled first.\nResponses cannot go on from it any more.",
	}, func(c *command.Call) error { return c.API.DeleteResponse(c.Ctx, c.Args[0]) })
}
