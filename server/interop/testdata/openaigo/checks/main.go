// Checks does what a program does with OpenAI's SDK for Go. Each check prints its name once it
// holds.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/azure"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

var base, key = os.Getenv("BASE_URL"), os.Getenv("API_KEY")

func newClient(opts ...option.RequestOption) openai.Client {
	all := append([]option.RequestOption{option.WithBaseURL(base + "/v1/"), option.WithAPIKey(key), option.WithMaxRetries(0)}, opts...)
	return openai.NewClient(all...)
}

var client = newClient()

// checks are all checks, in order.
var checks = []struct {
	name  string
	check func(context.Context) error
}{
	{"models", models},
	{"chat", chat},
	{"stream", stream},
	{"tools", tools},
	{"structured", structured},
	{"vision", vision},
	{"embeddings", embeddings},
	{"errors", failures},
	{"azure", azureClient},
	{"leaving", leaving},
	{"responses", respond},
	{"response stream", respondInPieces},
	{"background", respondInBackground},
}

func main() {
	for _, c := range checks {
		if err := c.check(context.Background()); err != nil {
			log.Fatalf("%s: %s", c.name, err)
		}
		fmt.Println("ok", c.name)
	}
}

// expect is an error unless the condition holds.
func expect(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

const greeting = "Hi there, what can I do for you today?"

func say(text string) []openai.ChatCompletionMessageParamUnion {
	return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}
}

func models(ctx context.Context) error {
	page, err := client.Models.List(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, m := range page.Data {
		ids = append(ids, m.ID)
	}
	one, err := client.Models.Get(ctx, "chat")
	if err != nil {
		return err
	}
	return expect(slices.Equal(ids, []string{"chat", "embedding"}) && one.ID == "chat", "%v, %v", ids, one)
}

func chat(ctx context.Context) error {
	done, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "chat", Messages: say("hello"), Seed: openai.Int(7)})
	if err != nil {
		return err
	}
	return expect(done.Choices[0].Message.Content == greeting && done.Usage.TotalTokens > 0, "%s", done.RawJSON())
}

func stream(ctx context.Context) error {
	chunks := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: "chat", Messages: say("hello"), StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	})
	var all openai.ChatCompletionAccumulator
	for chunks.Next() {
		if !all.AddChunk(chunks.Current()) {
			return fmt.Errorf("a chunk does not follow from those before: %s", chunks.Current().RawJSON())
		}
	}
	if err := chunks.Err(); err != nil {
		return err
	}
	return expect(all.Choices[0].Message.Content == greeting && all.Usage.TotalTokens > 0, "%v", all)
}

func tools(ctx context.Context) error {
	params := openai.ChatCompletionNewParams{Model: "chat", Messages: say("weather"), Tools: []openai.ChatCompletionToolUnionParam{
		openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "get_weather", Parameters: openai.FunctionParameters{
			"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}},
		}}),
	}}
	done, err := client.Chat.Completions.New(ctx, params)
	if err != nil {
		return err
	}
	calls := done.Choices[0].Message.ToolCalls
	if err := expect(len(calls) == 1 && calls[0].Function.Arguments == `{"city":"Oslo"}`, "%s", done.RawJSON()); err != nil {
		return err
	}
	chunks := client.Chat.Completions.NewStreaming(ctx, params)
	var all openai.ChatCompletionAccumulator
	for chunks.Next() {
		all.AddChunk(chunks.Current())
	}
	return errors.Join(chunks.Err(), expect(len(all.Choices) == 1 && len(all.Choices[0].Message.ToolCalls) == 1, "%v", all))
}

func structured(ctx context.Context) error {
	done, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: "chat", Messages: say("person"),
		ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &openai.ResponseFormatJSONSchemaParam{
			JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "person", Strict: openai.Bool(true), Schema: map[string]any{"type": "object"}},
		}},
	})
	if err != nil {
		return err
	}
	return expect(done.Choices[0].Message.Content == `{"name":"Ada","age":36}`, "%s", done.RawJSON())
}

func vision(ctx context.Context) error {
	done, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "chat", Messages: []openai.ChatCompletionMessageParamUnion{
		openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			openai.TextContentPart("image"),
			openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64,iVBORw0KGgo="}),
		}),
	}})
	if err != nil {
		return err
	}
	return expect(done.Choices[0].Message.Content == "A red square.", "%s", done.RawJSON())
}

func embeddings(ctx context.Context) error {
	want := []float64{0.25, -0.5, 0.125, 1.5}
	done, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: "embedding", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"vector"}},
	})
	if err != nil {
		return err
	}
	return expect(slices.Equal(done.Data[0].Embedding, want), "%s", done.RawJSON())
}

// refused is an error unless err is OpenAI's error with that status and code.
func refused(err error, status int, code string) error {
	var e *openai.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("this is no error of the API: %w", err)
	}
	return expect(e.StatusCode == status && e.Code == code && e.Message != "", "%d %q: %s", e.StatusCode, e.Code, e.RawJSON())
}

func failures(ctx context.Context) error {
	_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "none", Messages: say("hello")})
	if err := refused(err, 404, "model_not_found"); err != nil {
		return err
	}
	_, err = client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "chat", Messages: say("forbidden")})
	if err := refused(err, 400, "content_policy_violation"); err != nil {
		return err
	}
	stranger := newClient(option.WithAPIKey("sk-wrong"))
	_, err = stranger.Models.List(ctx)
	if err := refused(err, 401, "invalid_api_key"); err != nil {
		return err
	}
	return refused(client.Get(ctx, "audio/nothing", nil, nil), 404, "")
}

func azureClient(ctx context.Context) error {
	c := openai.NewClient(azure.WithEndpoint(base, "2024-10-21"), azure.WithAPIKey(key), azure.WithUnsafeAllowHTTP(), option.WithMaxRetries(0))
	done, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "chat", Messages: say("hello")})
	if err != nil {
		return err
	}
	return expect(done.Choices[0].Message.Content == greeting, "%s", done.RawJSON())
}

func leaving(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	chunks := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: "chat", Messages: say("hello")})
	first := chunks.Next()
	leave()
	_ = chunks.Close()
	return expect(first, "no chunk came")
}

func asking(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "chat", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
}

func respond(ctx context.Context) error {
	first, err := client.Responses.New(ctx, asking("hello"))
	if err != nil {
		return err
	}
	again, err := client.Responses.Get(ctx, first.ID, responses.ResponseGetParams{})
	if err != nil {
		return err
	}
	items, err := client.Responses.InputItems.List(ctx, first.ID, responses.InputItemListParams{})
	if err != nil {
		return err
	}
	if err := expect(first.OutputText() == greeting && again.OutputText() == greeting && len(items.Data) == 1, "%s", again.RawJSON()); err != nil {
		return err
	}
	next := asking("hello")
	next.PreviousResponseID = openai.String(first.ID)
	if _, err := client.Responses.New(ctx, next); err != nil {
		return err
	}
	if err := client.Responses.Delete(ctx, first.ID); err != nil {
		return err
	}
	_, err = client.Responses.New(ctx, next)
	return refused(err, 400, "previous_response_not_found")
}

func respondInPieces(ctx context.Context) error {
	events := client.Responses.NewStreaming(ctx, asking("hello"))
	text, last := "", ""
	for events.Next() {
		e := events.Current()
		if last = e.Type; e.Type == "response.output_text.delta" {
			text += e.Delta
		}
	}
	return errors.Join(events.Err(), expect(text == greeting && last == "response.completed", "%q, %s", text, last))
}

// respondInBackground leaves a stream and reads the rest by the SDK's way of going on. That sends a
// body with GET.
func respondInBackground(ctx context.Context) error {
	params := asking("hello")
	params.Background = openai.Bool(true)
	made, err := client.Responses.New(ctx, params)
	if err != nil {
		return err
	}
	events := client.Responses.GetStreaming(ctx, made.ID, responses.ResponseGetParams{StartingAfter: openai.Int(1)})
	next, text := int64(2), ""
	for events.Next() {
		e := events.Current()
		if e.SequenceNumber != next {
			return fmt.Errorf("event %d came instead of %d", e.SequenceNumber, next)
		}
		if next++; e.Type == "response.output_text.delta" {
			text += e.Delta
		}
	}
	return errors.Join(events.Err(), expect(text == greeting, "%q after %d events", text, next))
}
