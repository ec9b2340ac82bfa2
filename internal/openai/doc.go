// Package openai serves OpenAI's HTTP API, so that a client changes only its base URL. The facts
// about that API, and how its SDKs use it, are those of OpenAI's OpenAPI file and of the SDKs.
//
// # Synchronous calls
//
// A call of /chat/completions and its like is a job whose client waits on its connection. It goes
// through admission, fair share, budgets and retries like every job. Its queue is this process's
// own, because only this process has the connection.
//
// The job's input is a token, not the request: [Calls] keeps the request in memory and gives it to
// the job's task. The task writes the answer to the client as it comes from the provider, byte for
// byte. So nothing of prompts or answers is stored. Attempts, usage and cost are.
//
// [Messages] serves Anthropic's API in the same way, to deployments of Anthropic.
//
// A client that leaves cancels its job, and with it the call. A job whose process died finds no
// request and fails.
package openai
