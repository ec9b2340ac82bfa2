package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func Example() {
	// In place of a server: forebay serve.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		job := forebay.Job{ID: "job_1", Status: forebay.StatusQueued}
		if r.Method == http.MethodGet {
			job.Status, job.Result = forebay.StatusSucceeded, json.RawMessage(`{"summary":"It is blue."}`)
		}
		json.NewEncoder(w).Encode(job)
	}))
	defer server.Close()

	ctx := context.Background()
	c, err := client.New(client.Options{BaseURL: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	job, _, err := c.Submit(ctx, forebay.SubmitRequest{Task: "summarize", Input: json.RawMessage(`"The sky is blue."`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.ID, job.Status)
	if job, err = c.Wait(ctx, job.ID); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Status, string(job.Result))
	// Output:
	// job_1 queued
	// succeeded {"summary":"It is blue."}
}
