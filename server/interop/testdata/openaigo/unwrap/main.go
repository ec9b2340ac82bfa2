// Unwrap reads a webhook (its headers and body as JSON) and prints what OpenAI's SDK makes of it.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	var delivery struct {
		Headers map[string]string
		Body    string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&delivery); err != nil {
		log.Fatal(err)
	}
	headers := http.Header{}
	for name, value := range delivery.Headers {
		headers.Set(name, value)
	}
	client := openai.NewClient(option.WithAPIKey("any"), option.WithWebhookSecret(os.Getenv("SECRET")))
	event, err := client.Webhooks.Unwrap([]byte(delivery.Body), headers)
	if err != nil {
		log.Fatal(err)
	}
	var data struct{ Data struct{ ID string } }
	if err := json.Unmarshal([]byte(event.RawJSON()), &data); err != nil {
		log.Fatal(err)
	}
	fmt.Println(event.Type, data.Data.ID)
	if _, err := client.Webhooks.Unwrap([]byte(delivery.Body+" "), headers); err != nil {
		fmt.Println("ok")
	}
}
