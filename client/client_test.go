package client

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// serve runs a fake server and returns a client of it.
func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := New(Options{BaseURL: server.URL, Key: "fb_test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func answerProblem(w http.ResponseWriter, status int, code forebay.Code, field, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "status": status, "code": code, "field": field, "detail": detail, "job_id": "job_1"})
}

func TestBaseURL(t *testing.T) {
	for _, bad := range []string{"localhost:8080", "ftp://x", "http://", "http://x?y", "://"} {
		if _, err := New(Options{BaseURL: bad}); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("New(%q) is %v, want an invalid request", bad, err)
		}
	}
	c, err := New(Options{BaseURL: "https://user:secret@x/base/"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.url(path("jobs", "a/b?c"), nil); got != "https://user:secret@x/base/v1/jobs/a%2Fb%3Fc" {
		t.Errorf("address is %s", got)
	}
	if strings.Contains(c.BaseURL(), "secret") {
		t.Errorf("BaseURL shows the password: %s", c.BaseURL())
	}
}

func TestSubmit(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil {
			t.Errorf("body %q: %v", body, err)
		}
		if r.Method != http.MethodPost || r.URL.Path != "/v1/jobs" || r.Header.Get("Authorization") != "Bearer fb_test" ||
			r.Header.Get("Idempotency-Key") != "once" || r.Header.Get("traceparent") != "00-a" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
		if fields["idempotency_key"] != nil || fields["traceparent"] != nil || fields["task"] != "chat" || fields["input"] != "hi" {
			t.Errorf("body is %s", body)
		}
		w.Header().Set("Idempotency-Replayed", "true")
		answerJSON(w, http.StatusAccepted, forebay.Job{ID: "job_1", Status: forebay.StatusQueued})
	})
	job, existing, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "chat", Input: json.RawMessage(`"hi"`), IdempotencyKey: "once", Traceparent: "00-a"})
	if err != nil || job.ID != "job_1" || !existing {
		t.Errorf("got %+v, existing %t, error %v", job, existing, err)
	}
}

func TestSubmitIsRepeatedWithTheSameKey(t *testing.T) {
	var calls atomic.Int32
	keys := make(chan string, 3)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0")
			answerProblem(w, http.StatusServiceUnavailable, forebay.CodeTooManyRequests, "", "busy")
		case 2:
			panic(http.ErrAbortHandler) // the connection breaks before an answer
		default:
			answerJSON(w, http.StatusAccepted, forebay.Job{ID: "job_1"})
		}
	})
	if _, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "chat"}); err != nil {
		t.Fatal(err)
	}
	first, second, third := <-keys, <-keys, <-keys
	if first == "" || first != second || second != third {
		t.Errorf("keys are %q, %q, %q; want the same three times", first, second, third)
	}
}

func TestRetryAfterBeyondTheTimeIsNotWaitedFor(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "3600")
		answerProblem(w, http.StatusServiceUnavailable, forebay.CodeUnavailable, "", "down")
	})
	_, err := c.Get(t.Context(), "job_1")
	if forebay.CodeOf(err) != forebay.CodeUnavailable || calls.Load() != 1 {
		t.Errorf("error %v after %d calls, want unavailable after 1", err, calls.Load())
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, "-1": 0, "soon": 0, "99999999999": 0,
		"Wed, 02 Jan 2030 03:04:15 GMT": 10 * time.Second, "Wed, 02 Jan 2030 03:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("Retry-After %q is %s, want %s", value, got, want)
		}
	}
}

func TestWhatMustHappenOnceIsNotRepeated(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler)
	})
	for name, do := range map[string]func() error{
		"webhook": func() error { _, err := c.CreateWebhook(t.Context(), forebay.NewWebhook{}); return err },
		"rotate": func() error {
			_, err := c.RotateWebhookSecret(t.Context(), "w", forebay.RotateSecretRequest{})
			return err
		},
		"redrive":  func() error { _, err := c.Redrive(t.Context(), "job_1"); return err },
		"keys":     func() error { _, err := c.CreateKey(t.Context(), "t", nil, nil); return err },
		"purge":    func() error { _, err := c.Quarantine("q").Purge(t.Context(), forebay.SetAsideFilter{}); return err },
		"redrives": func() error { _, err := c.DeadLetters("q").Redrive(t.Context(), forebay.RedriveRequest{}); return err },
	} {
		calls.Store(0)
		if err := do(); forebay.CodeOf(err) != forebay.CodeUnavailable || calls.Load() != 1 {
			t.Errorf("%s: error %v after %d calls, want unavailable after 1", name, err, calls.Load())
		}
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   forebay.Error
	}{
		{"problem", func(w http.ResponseWriter) {
			answerProblem(w, http.StatusUnprocessableEntity, forebay.CodeUnknownTask, "body.task", "body.task: there is none")
		}, forebay.Error{Code: forebay.CodeUnknownTask, Field: "body.task", Message: "there is none", JobID: "job_1"}},
		{"proxy", func(w http.ResponseWriter) { http.Error(w, "<html>", http.StatusForbidden) },
			forebay.Error{Code: forebay.CodeForbidden, Message: "the server answered 403 Forbidden, not as a Forebay server does; check the address"}},
		{"TLS", func(w http.ResponseWriter) {
			http.Error(w, "Client sent an HTTP request to an HTTPS server.", http.StatusBadRequest)
		}, forebay.Error{Code: forebay.CodeInvalidRequest, Message: "the server answered 400 Bad Request: it speaks TLS, so its address begins with https"}},
		{"huge problem", func(w http.ResponseWriter) {
			answerProblem(w, http.StatusNotFound, forebay.CodeNotFound, "", strings.Repeat("x", maxProblemBytes))
		}, forebay.Error{Code: forebay.CodeNotFound, Message: "the server answered 404 Not Found"}},
		{"unusable database", func(w http.ResponseWriter) {
			answerProblem(w, http.StatusServiceUnavailable, forebay.CodeDatabaseUnusable, "", "read-only")
		}, forebay.Error{Code: forebay.CodeDatabaseUnusable, Message: "read-only", JobID: "job_1"}},
	} {
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
		_, err := client.Get(t.Context(), "job_1")
		got, ok := errors.AsType[*forebay.Error](err)
		if !ok || got.Code != c.want.Code || got.Field != c.want.Field || got.Message != c.want.Message || got.JobID != c.want.JobID {
			t.Errorf("%s: got %#v, want %#v", c.name, err, c.want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	c, err := New(Options{BaseURL: "http://127.0.0.1:1", RetryTime: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), "job_1")
	if forebay.CodeOf(err) != forebay.CodeUnavailable || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, "job_1"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the context's", err)
	}
}

func TestAnswerLimit(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, forebay.Job{ID: strings.Repeat("x", 2000)})
	})
	c.maxBytes = 1000
	if _, err := c.Get(t.Context(), "job_1"); forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
		t.Errorf("error is %v, want payload too large", err)
	}
}

func TestAnswerThatIsNotForebays(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	if _, err := c.Get(t.Context(), "job_1"); !errors.Is(err, errNotForebay) {
		t.Errorf("error is %v", err)
	}
}

func TestEmptyIDsAreNotSent(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.URL) })
	for _, err := range []error{
		second(c.Get(t.Context(), "")), second(c.Get(t.Context(), "..")), second(c.Queue(t.Context(), "")), c.RevokeKey(t.Context(), ""),
		second(c.Webhook(t.Context(), "")), c.DeleteWebhook(t.Context(), ".."), second(c.DeadLetters("q").Peek(t.Context(), "")), second(c.DeadLetters("").Peek(t.Context(), "job_1")),
		second(c.DeadLetters("q").Redrive(t.Context(), forebay.RedriveRequest{Filter: forebay.SetAsideFilter{JobIDs: []string{}}})),
	} {
		if forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("error is %v, want an invalid request", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

func TestWait(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("wait") != "30s" {
			t.Errorf("query is %s", r.URL.RawQuery)
		}
		status := forebay.StatusRunning
		if calls.Add(1) == 2 {
			status = forebay.StatusSucceeded
		}
		answerJSON(w, http.StatusOK, forebay.Job{ID: "job_1", Status: status})
	})
	job, err := c.Wait(t.Context(), "job_1")
	if err != nil || job.Status != forebay.StatusSucceeded || calls.Load() != 2 {
		t.Errorf("got %s, %v after %d calls", job.Status, err, calls.Load())
	}
}

func TestOperations(t *testing.T) {
	after := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		do   func(context.Context, *Client) error
		want string // method, address, body
	}{
		{"attempts", func(ctx context.Context, c *Client) error { return second(c.Attempts(ctx, "job_1")) }, "GET /v1/jobs/job_1/attempts "},
		{"cancel", func(ctx context.Context, c *Client) error { return second(c.Cancel(ctx, "job_1")) }, "POST /v1/jobs/job_1/cancel "},
		{"redrive", func(ctx context.Context, c *Client) error { return second(c.Redrive(ctx, "job_1")) }, "POST /v1/jobs/job_1/redrive "},
		{"queues", func(ctx context.Context, c *Client) error { return second(c.Queues(ctx)) }, "GET /v1/queues "},
		{"queue", func(ctx context.Context, c *Client) error { return second(c.Queue(ctx, "q")) }, "GET /v1/queues/q "},
		{"pause", func(ctx context.Context, c *Client) error { return c.PauseQueue(ctx, "q") }, "POST /v1/queues/q/pause "},
		{"resume", func(ctx context.Context, c *Client) error { return c.ResumeQueue(ctx, "q") }, "POST /v1/queues/q/resume "},
		{"tasks", func(ctx context.Context, c *Client) error { return second(c.Tasks(ctx)) }, "GET /v1/tasks "},
		{"task", func(ctx context.Context, c *Client) error { return second(c.Task(ctx, "chat")) }, "GET /v1/tasks/chat "},
		{"deployments", func(ctx context.Context, c *Client) error { return second(c.Deployments(ctx)) }, "GET /v1/deployments "},
		{"faults", func(ctx context.Context, c *Client) error { return second(c.SimFaults(ctx, "d")) }, "GET /v1/deployments/d/sim "},
		{"set faults", func(ctx context.Context, c *Client) error {
			return c.SetSimFaults(ctx, "d", json.RawMessage(`{"seed":1}`))
		}, `PUT /v1/deployments/d/sim {"seed":1}`},
		{"report", func(ctx context.Context, c *Client) error { return second(c.RetryReport(ctx, after, time.Time{})) }, "GET /v1/reports/retries?since=2030-01-02T03%3A04%3A05Z "},
		{"keys", func(ctx context.Context, c *Client) error { return second(c.Keys(ctx)) }, "GET /v1/keys "},
		{"create key", func(ctx context.Context, c *Client) error {
			return second(c.CreateKey(ctx, "acme", []forebay.Scope{"read"}, &after))
		}, `POST /v1/keys {"tenant":"acme","scopes":["read"],"expires_at":"2030-01-02T03:04:05Z"}`},
		{"revoke key", func(ctx context.Context, c *Client) error { return c.RevokeKey(ctx, "key_1") }, "DELETE /v1/keys/key_1 "},
		{"sign-ins", func(ctx context.Context, c *Client) error { return third(c.SignIns(ctx, "person:ada")) }, "GET /v1/sign-ins?owner=person%3Aada "},
		{"end sign-in", func(ctx context.Context, c *Client) error { return c.EndSignIn(ctx, "signin_1") }, "DELETE /v1/sign-ins/signin_1 "},
		{"end sign-ins", func(ctx context.Context, c *Client) error { return second(c.EndSignIns(ctx, "key_1")) }, "DELETE /v1/sign-ins?owner=key_1 "},
		{"audit", func(ctx context.Context, c *Client) error {
			for range c.Audit(ctx, forebay.AuditFilter{Tenant: "acme", Actor: "key_1", Action: "purge"}, 5) {
			}
			return nil
		}, "GET /v1/audit?action=purge&actor=key_1&limit=5&tenant=acme "},
		{"audit of a time", func(ctx context.Context, c *Client) error {
			before := after.Add(time.Hour + time.Millisecond)
			for range c.Audit(ctx, forebay.AuditFilter{CreatedAfter: &after, CreatedBefore: &before}, 0) {
			}
			return nil
		}, "GET /v1/audit?created_after=2030-01-02T03%3A04%3A05Z&created_before=2030-01-02T04%3A04%3A05.001Z "},
		{"webhooks", func(ctx context.Context, c *Client) error { return second(c.Webhooks(ctx)) }, "GET /v1/webhooks "},
		{"webhook", func(ctx context.Context, c *Client) error { return second(c.Webhook(ctx, "w")) }, "GET /v1/webhooks/w "},
		{"create webhook", func(ctx context.Context, c *Client) error {
			return second(c.CreateWebhook(ctx, forebay.NewWebhook{Name: "w", WebhookSettings: forebay.WebhookSettings{URL: "https://x/", EventTypes: []forebay.EventType{"failed"}}}))
		}, `POST /v1/webhooks {"name":"w","url":"https://x/","event_types":["failed"]}`},
		{"update webhook", func(ctx context.Context, c *Client) error {
			return second(c.UpdateWebhook(ctx, "w", forebay.WebhookSettings{URL: "https://x/", Disabled: true}))
		}, `PUT /v1/webhooks/w {"url":"https://x/","disabled":true}`},
		{"delete webhook", func(ctx context.Context, c *Client) error { return c.DeleteWebhook(ctx, "w") }, "DELETE /v1/webhooks/w "},
		{"test webhook", func(ctx context.Context, c *Client) error { return second(c.TestWebhook(ctx, "w")) }, "POST /v1/webhooks/w/test "},
		{"rotate secret", func(ctx context.Context, c *Client) error {
			return second(c.RotateWebhookSecret(ctx, "w", forebay.RotateSecretRequest{}))
		}, "POST /v1/webhooks/w/rotate-secret {}"},
		{"tries", func(ctx context.Context, c *Client) error { return second(c.WebhookTries(ctx, "w")) }, "GET /v1/webhooks/w/tries "},
		{"webhook's dead letters", func(ctx context.Context, c *Client) error {
			for range c.WebhookDeadLetters(ctx, "w", 7) {
			}
			return nil
		}, "GET /v1/webhooks/w/dead-letters?limit=7 "},
		{"redeliver", func(ctx context.Context, c *Client) error {
			return second(c.Redeliver(ctx, "w", forebay.RedeliverRequest{SequenceNumbers: []int64{3, 4}}))
		}, `POST /v1/webhooks/w/redeliver {"sequence_numbers":[3,4]}`},
		{"dead letters", func(ctx context.Context, c *Client) error {
			for range c.DeadLetters("q").List(ctx, forebay.SetAsideFilter{JobIDs: []string{"a", "b"}, Reason: "r", After: &after}, 5) {
			}
			return nil
		}, "GET /v1/queues/q/dead-letters?after=2030-01-02T03%3A04%3A05Z&job_ids=a&job_ids=b&limit=5&reason=r "},
		{"peek", func(ctx context.Context, c *Client) error { return second(c.Quarantine("q").Peek(ctx, "job_1")) }, "GET /v1/queues/q/quarantine/job_1 "},
		{"redrive dead letters", func(ctx context.Context, c *Client) error {
			return second(c.DeadLetters("q").Redrive(ctx, forebay.RedriveRequest{DryRun: true, Filter: forebay.SetAsideFilter{Task: "t"}}))
		}, `POST /v1/queues/q/dead-letters/redrive {"filter":{"task":"t"},"dry_run":true}`},
		{"purge some", func(ctx context.Context, c *Client) error {
			return second(c.DeadLetters("q").Purge(ctx, forebay.SetAsideFilter{Task: "t"}))
		}, `POST /v1/queues/q/dead-letters/purge {"filter":{"task":"t"}}`},
		{"purge all", func(ctx context.Context, c *Client) error {
			return second(c.DeadLetters("q").Purge(ctx, forebay.SetAsideFilter{}))
		}, `POST /v1/queues/q/dead-letters/purge {"all":true}`},
		{"message queues", func(ctx context.Context, c *Client) error { return second(c.MessageQueues(ctx)) }, "GET /v1/queues?kind=messages "},
		{"put queue", func(ctx context.Context, c *Client) error {
			return second(c.PutMessageQueue(ctx, "q", forebay.MessageQueueSettings{LockSeconds: 5}))
		}, `PUT /v1/queues/q {"lock_seconds":5}`},
		{"delete queue", func(ctx context.Context, c *Client) error { return c.DeleteMessageQueue(ctx, "q") }, "DELETE /v1/queues/q "},
		{"send", func(ctx context.Context, c *Client) error {
			return second(c.Messages("q").Send(ctx, forebay.NewMessage{SessionID: "s"}))
		}, `POST /v1/queues/q/messages {"messages":[{"session_id":"s"}]}`},
		{"cancel scheduled", func(ctx context.Context, c *Client) error { return c.Messages("q").CancelScheduled(ctx, 7) }, "POST /v1/queues/q/messages/7/cancel "},
		{"receive", func(ctx context.Context, c *Client) error {
			return second(c.Messages("q/$deadletterqueue").Receive(ctx, forebay.ReceiveRequest{MaxMessages: 2}))
		}, `POST /v1/queues/q/$deadletterqueue/messages/receive {"max_messages":2}`},
		{"peek messages", func(ctx context.Context, c *Client) error {
			for range c.Messages("q").Peek(ctx, 3) {
			}
			return nil
		}, "GET /v1/queues/q/messages?cursor=3 "},
		{"peek dead letters", func(ctx context.Context, c *Client) error {
			for range c.Messages("q/$deadletterqueue").PeekReason(ctx, "bad", 0) {
			}
			return nil
		}, "GET /v1/queues/q/$deadletterqueue/messages?reason=bad "},
		{"delete messages", func(ctx context.Context, c *Client) error {
			return second(c.Messages("q").DeleteBefore(ctx, forebay.DeleteMessagesRequest{Before: after}))
		}, `POST /v1/queues/q/messages/delete {"enqueued_before":"2030-01-02T03:04:05Z"}`},
		{"complete", func(ctx context.Context, c *Client) error { return c.Messages("q").Complete(ctx, "l") }, "POST /v1/queues/q/locks/l/complete "},
		{"abandon", func(ctx context.Context, c *Client) error {
			return c.Messages("q").Abandon(ctx, "l", forebay.Settlement{})
		}, "POST /v1/queues/q/locks/l/abandon {}"},
		{"release", func(ctx context.Context, c *Client) error { return c.Messages("q").Release(ctx, "l") }, "POST /v1/queues/q/locks/l/release "},
		{"defer", func(ctx context.Context, c *Client) error {
			return c.Messages("q").Defer(ctx, "l", forebay.Settlement{})
		}, "POST /v1/queues/q/locks/l/defer {}"},
		{"dead-letter", func(ctx context.Context, c *Client) error {
			return c.Messages("q").DeadLetter(ctx, "l", forebay.Settlement{Reason: "r"})
		}, `POST /v1/queues/q/locks/l/dead-letter {"reason":"r"}`},
		{"renew", func(ctx context.Context, c *Client) error { return second(c.Messages("q").Renew(ctx, "l")) }, "POST /v1/queues/q/locks/l/renew "},
		{"accept session", func(ctx context.Context, c *Client) error {
			_, found, err := c.Messages("q").AcceptSession(ctx, forebay.AcceptSessionRequest{SessionID: "s"})
			if !found {
				return errors.New("no session was found")
			}
			return err
		}, `POST /v1/queues/q/sessions/accept {"session_id":"s"}`},
		{"receive of session", func(ctx context.Context, c *Client) error {
			return second(c.Messages("q").ReceiveSession(ctx, "t", forebay.ReceiveRequest{}))
		}, "POST /v1/queues/q/sessions/t/receive {}"},
		{"renew session", func(ctx context.Context, c *Client) error { return second(c.Messages("q").RenewSession(ctx, "t")) }, "POST /v1/queues/q/sessions/t/renew "},
		{"close session", func(ctx context.Context, c *Client) error { return c.Messages("q").CloseSession(ctx, "t") }, "POST /v1/queues/q/sessions/t/close "},
		{"session state", func(ctx context.Context, c *Client) error { return second(c.Messages("q").SessionState(ctx, "t")) }, "GET /v1/queues/q/sessions/t/state "},
		{"set session state", func(ctx context.Context, c *Client) error {
			return c.Messages("q").SetSessionState(ctx, "t", []byte{0})
		}, `PUT /v1/queues/q/sessions/t/state {"state_base64":"AA=="}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got string
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = r.Method + " " + r.URL.String() + " " + string(body)
				fmt.Fprint(w, "{}")
			})
			if err := c.do(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("sent %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestResultIsStreamed(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 5000)) })
	c.maxBytes = 1000 // a limit of what is read into memory; a result is not
	r, err := c.Result(t.Context(), "job_1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); err != nil || len(data) != 5000 {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
}

// A server whose certificate is an own authority's is trusted only by who names it.
func TestCACertificates(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"items":[]}`))
	}))
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, c := range []struct {
		pem  []byte
		want bool
	}{{authority, true}, {nil, false}} {
		api, err := New(Options{BaseURL: server.URL, CACertificates: c.pem, RetryTime: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Tasks(t.Context()); (err == nil) != c.want {
			t.Errorf("with %d bytes of certificates: %v", len(c.pem), err)
		}
	}
	if _, err := New(Options{BaseURL: server.URL, CACertificates: []byte("no PEM")}); err == nil {
		t.Error("what is no certificate was taken")
	}
}

// A conditional change is sent once: a repetition could meet the change that the lost answer was
// about. Reads have no condition.
func TestConditionsAreSentOnce(t *testing.T) {
	var changes, conditions atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") == `"a"` && r.Header.Get("If-None-Match") == "" {
			conditions.Add(1)
		}
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"name":"t","etag":"\"a\""}`))
			return
		}
		changes.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	ctx := forebay.WithCondition(t.Context(), forebay.IfMatch(`"a"`))
	topic, err := c.Topic(ctx, "t")
	if err != nil || topic.ETag != `"a"` || conditions.Load() != 0 {
		t.Errorf("%+v, %v: %d conditions", topic, err, conditions.Load())
	}
	if _, err := c.PutTopic(ctx, "t", forebay.TopicSettings{}); forebay.CodeOf(err) != forebay.CodeUnavailable || changes.Load() != 1 || conditions.Load() != 1 {
		t.Errorf("%v after %d requests, %d with the condition", err, changes.Load(), conditions.Load())
	}
}

// A change that must not be repeated is repeated while nothing was done: no connection could be
// made, as after a restart, and then the server had no room.
func TestWhatDidNothingIsRepeated(t *testing.T) {
	var requests, dials atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			answerProblem(w, http.StatusServiceUnavailable, forebay.CodeTooManyRequests, "", "the server is busy")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	refuses := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	c, err := New(Options{BaseURL: server.URL, HTTPClient: &http.Client{Transport: refuses}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteMessageQueue(t.Context(), "orders"); err != nil || requests.Load() != 2 || dials.Load() < 2 {
		t.Errorf("%v after %d requests and %d tries to connect", err, requests.Load(), dials.Load())
	}
}
