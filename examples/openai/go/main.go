// What OpenAI's SDK for Go does with Forebay: go run . http://localhost:8080 [key]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: program BASE_URL [KEY]")
	}
	key := "any"
	if len(os.Args) > 2 {
		key = os.Args[2]
	}
	client := openai.NewClient(option.WithBaseURL(os.Args[1]+"/v1/"), option.WithAPIKey(key)) // the one line that changes
	if err := run(context.Background(), client); err != nil {
		log.Fatal(err)
	}
}

func ask(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "chat", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

func run(ctx context.Context, client openai.Client) error {
	// A call waits for quota instead of failing with 429.
	done, err := client.Chat.Completions.New(ctx, ask("What is a forebay?"))
	if err != nil {
		return err
	}
	fmt.Println("chat:", done.Choices[0].Message.Content)

	stream, text := client.Chat.Completions.NewStreaming(ctx, ask("And a weir?")), ""
	for stream.Next() {
		text += stream.Current().Choices[0].Delta.Content
	}
	if err := stream.Err(); err != nil {
		return err
	}
	fmt.Println("stream:", text)

	// A response in the background survives restarts of the server and of this program.
	response, err := client.Responses.New(ctx, responses.ResponseNewParams{
		Model: "chat", Background: openai.Bool(true), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Write a report on rivers.")},
	})
	for err == nil && slices.Contains([]responses.ResponseStatus{"queued", "in_progress"}, response.Status) {
		time.Sleep(200 * time.Millisecond)
		response, err = client.Responses.Get(ctx, response.ID, responses.ResponseGetParams{})
	}
	if err != nil {
		return err
	}
	fmt.Println("response:", response.Status, response.OutputText())

	// A batch uses the quota that nobody else wants.
	var lines strings.Builder
	for i := range 3 {
		fmt.Fprintf(&lines, `{"custom_id":"line-%d","method":"POST","url":"/v1/chat/completions",`+
			`"body":{"model":"chat","messages":[{"role":"user","content":"Describe river %d."}]}}`+"\n", i, i)
	}
	file, err := client.Files.New(ctx, openai.FileNewParams{
		File: openai.File(strings.NewReader(lines.String()), "lines.jsonl", "application/jsonl"), Purpose: openai.FilePurposeBatch,
	})
	if err != nil {
		return err
	}
	batch, err := client.Batches.New(ctx, openai.BatchNewParams{
		InputFileID: file.ID, Endpoint: openai.BatchNewParamsEndpointV1ChatCompletions, CompletionWindow: openai.BatchNewParamsCompletionWindow24h,
	})
	for err == nil && !slices.Contains([]openai.BatchStatus{"completed", "failed", "expired", "cancelled"}, batch.Status) {
		time.Sleep(200 * time.Millisecond)
		batch, err = client.Batches.Get(ctx, batch.ID)
	}
	if err != nil {
		return err
	}
	fmt.Println("batch:", batch.Status, batch.RequestCounts.Completed, "of", batch.RequestCounts.Total)
	content, err := client.Files.Content(ctx, batch.OutputFileID)
	if err != nil {
		return err
	}
	defer content.Body.Close()
	for scanner := bufio.NewScanner(content.Body); scanner.Scan(); {
		var line struct {
			CustomID string `json:"custom_id"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return err
		}
		fmt.Println("  ", line.CustomID)
	}
	return nil
}
