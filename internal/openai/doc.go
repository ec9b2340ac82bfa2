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
// [Messages] serves Anthropic's API in the same way, to deployments of Anthropic. A count of
// tokens is no job: it costs nothing and has a rate limit of its own at the provider. It is called
// at once, within a number of places.
//
// # WebSocket mode
//
// A connection of GET /responses reads events while it answers them, one after the other. Each is
// a request of its own: it counts against the limits, claims memory, and its call is a job. The
// stream of its answer goes out as text messages instead of server-sent events. The connection
// keeps the latest response that is not stored, so that the next one can go on from it.
//
// # Ends
//
// A client that leaves cancels its job, and with it the call. A job whose process died finds no
// request and fails.
package openai
