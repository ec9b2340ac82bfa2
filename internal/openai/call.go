package openai

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/model"
)

// read reads the body of a request for a model. release gives its memory back.
func (a *API) read(r *api.SurfaceRequest) (req request, release func(), err error) {
	body, release, err := r.Body(a.MaxBody)
	if err != nil {
		return request{}, nil, err
	}
	if req, err = parse(body, r.PathValue("deployment")); err != nil {
		release()
		return request{}, nil, err
	}
	return req, release, nil
}

// call answers a synchronous call of an endpoint.
func (a *API) call(r *api.SurfaceRequest, endpoint string) error {
	req, release, err := a.read(r)
	if err != nil {
		return err
	}
	defer release()
	need := model.EstimateForward(endpoint, req.body)
	need.AsOpenAI = true
	if err := a.served(req.model, need); err != nil {
		return err
	}
	return a.make(r, req, endpoint, &pending{body: req.body, stream: req.stream, need: need})
}

// served refuses a call of a model that nothing serves.
func (a *API) served(name string, need forebay.CallEstimate) error {
	switch known, forwards := a.Serves(name, need); {
	case !known:
		return unknownModel(name)
	case !forwards:
		return badRequest("model", "not_supported", "No deployment of this model takes requests of OpenAI's API as they are.")
	}
	return nil
}

// make makes a call and waits for its answer.
func (a *API) make(r *api.SurfaceRequest, req request, endpoint string, p *pending) error {
	p.w, p.flush, p.ended, p.keep = r.Writer, r.Flush, make(chan struct{}, 1), a.KeepBodies
	token := a.Calls.add(p)
	defer a.Calls.remove(token)
	defer p.leave()
	priority, deadline := req.priority(), time.Now().Add(callTimeout+flexPatience)
	job, changes, stop, err := a.Jobs.SubmitWatched(r.Context(), r.Caller.Tenant, forebay.SubmitRequest{
		Task: taskName(endpoint, req.model), Input: []byte(strconv.Quote(token)), Queue: a.Queue, Priority: &priority, Deadline: &deadline,
		Traceparent: r.Header.Get("Traceparent"),
	})
	if err != nil {
		return err
	}
	defer stop()
	r.Correlate(job.ID)
	w := waiting{a, r, p, job.ID, changes, time.Now().Add(req.patience(r.Header))}
	return w.run()
}

// waiting is a client that waits for the answer to its call.
type waiting struct {
	*API
	*api.SurfaceRequest
	call    *pending
	job     string
	changes <-chan struct{} // of the job
	until   time.Time       // when it has waited long enough
}

// lookAfter is how long after a change the job is read, unless an attempt has failed. Most changes
// come just before the call begins, or just before its answer has ended, and need no read.
const lookAfter = 25 * time.Millisecond

// lookForRoom is how often a call is looked at that waits for what others hold of its budget. That
// they used it is no change of its job.
const lookForRoom = time.Second

// run waits until the answer is written, the call has failed for good, or it has waited too long.
func (w *waiting) run() error {
	look, due := time.NewTimer(lookAfter), true // the job may have changed before it was watched
	defer look.Stop()
	patience := time.NewTimer(time.Until(w.until))
	defer patience.Stop()
	room := time.NewTicker(lookForRoom)
	room.Stop()
	failed, impatient, stopping := false, false, false
	draining := w.Draining()
	for {
		unchanged := false
		select {
		case <-w.call.ended:
			failed = true // unless it is done
		case <-w.changes:
			if !failed {
				if !due { // many changes do not put it off
					look.Reset(lookAfter)
					due = true
				}
				continue
			}
		case <-look.C:
			due = false
		case <-room.C:
			unchanged = true // as far as is known
		case <-patience.C:
			impatient = true
		case <-draining:
			draining, stopping = nil, true
		case <-w.Context().Done():
			w.Gone()
			return w.giveUp(w.Context().Err())
		}
		calling, begun, done, last, err := w.call.state()
		switch {
		case done:
			return nil
		case calling:
			continue
		case begun:
			return w.cutOff(last, err)
		case unchanged:
			if w.spent() {
				return w.giveUp(noBudget())
			}
			continue
		}
		job, readErr := w.Jobs.Get(context.WithoutCancel(w.Context()), w.Caller.Tenant, w.job)
		switch {
		case readErr != nil:
			return w.giveUp(readErr)
		case job.Status.Terminal():
			if _, begun, done, last, err = w.call.state(); done { // between the two looks
				return nil
			} else if begun {
				return w.cutOff(last, err)
			}
			return w.failed(job, last, err)
		case stopping:
			return w.giveUp(&failure{status: http.StatusServiceUnavailable, kind: typeServer, code: "unavailable", message: "The server is stopping. Try again."})
		case impatient:
			if err != nil && forebay.AsTaskError(err).Class == forebay.ClassTransient {
				return w.giveUp(upstream(last, err)) // the provider's fault, and not a wait for quota
			}
			return w.giveUp(tooLong(job))
		case job.Status == forebay.StatusRunning:
			continue
		}
		switch {
		case !waitsFor(job, forebay.WaitBudget):
			room.Stop()
		case w.spent():
			return w.giveUp(noBudget())
		default:
			room.Reset(lookForRoom)
		}
	}
}

// spent reports whether a budget surely has no room for the call before it has waited long enough.
// What running calls hold may come back, so that is waited for. So is a database that cannot be
// read just now.
func (w *waiting) spent() bool {
	left, err := w.Spent(context.WithoutCancel(w.Context()), w.job)
	return err == nil && left > time.Until(w.until)
}

// cancelPatience is how long a call that its client has left goes on while the database does not
// answer.
const cancelPatience = time.Second

// giveUp cancels the job and returns the error. The job goes before its call, which so counts as
// cancelled and not as failed. What it may have used is charged.
func (w *waiting) giveUp(why error) error {
	// Whoever has left has left a job that nobody needs.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), 10*time.Second)
	defer cancel()
	w.call.shutOff()
	late := time.AfterFunc(cancelPatience, func() { w.call.abort() })
	defer late.Stop()
	_, err := w.Jobs.Cancel(ctx, w.Caller.Tenant, w.job)
	w.call.leave()
	if _, begun, done, last, broken := w.call.state(); done {
		return nil // the answer was written meanwhile
	} else if begun {
		return w.cutOff(last, broken)
	}
	if code := forebay.CodeOf(err); err == nil || code == forebay.CodeNotFound || code == forebay.CodeConflict {
		return why // it may have ended meanwhile, for nobody waits any more
	}
	return errors.Join(why, err)
}

// cutOff ends an answer that has begun. A stream ends with an error event. Any other answer ends
// with its connection, so that it cannot look complete.
func (w *waiting) cutOff(last model.ForwardResponse, err error) error {
	f := upstream(model.ForwardResponse{}, err)
	end := []byte("data: " + string(f.json()) + "\n\n")
	switch {
	case !w.call.stream:
		return err
	case w.call.latest != nil:
		end = w.call.latest.fail(f)
	case last.Passed: // the provider's own error is the end of it
		return nil
	case w.call.broken != nil:
		end = w.call.broken(f)
	}
	if _, writeErr := w.Writer.Write(end); writeErr != nil {
		return nil
	}
	_ = w.Flush()
	return nil
}

// failed answers for a job that ended without a result.
func (w *waiting) failed(job forebay.Job, last model.ForwardResponse, err error) error {
	if err == nil {
		if job.Status == forebay.StatusCancelled {
			return &failure{status: http.StatusServiceUnavailable, kind: typeServer, code: "cancelled", message: "the call was cancelled by an operator", shouldRetry: &no}
		}
		f := upstream(last, nil)
		if job.Error != nil {
			f.code, f.message = job.Error.Code, job.Error.Message
		}
		return f
	}
	f := upstream(last, err)
	body := w.refusal(f, last.Body)
	if f.status != last.Status || body == nil {
		return f
	}
	h := w.Writer.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Should-Retry", "false")                   // it was tried as often as is good
	if id := last.Header.Get("Request-Id"); id != "" { // Anthropic's, as in the body
		h.Set("Request-Id", id)
	}
	w.Writer.WriteHeader(last.Status)
	_, _ = w.Writer.Write(body)
	return nil
}

// refusal returns a provider's error as the client gets it; nil: a client cannot read it.
func (w *waiting) refusal(f *failure, body []byte) []byte {
	switch {
	case w.call.broken == nil:
		return f.whole(body)
	case isMessagesError(body):
		return body
	}
	return nil
}

// tooLong refuses a call that has waited as long as it may.
func tooLong(job forebay.Job) *failure {
	f := &failure{status: http.StatusTooManyRequests, kind: typeRateLimit, code: "rate_limit_exceeded", retryAfter: 5,
		message: "The call has waited for its turn as long as it may. Try again later."}
	if job.ExpectedStartAt != nil {
		f.retryAfter = int(min(60, max(1, time.Until(*job.ExpectedStartAt).Seconds()+1)))
	}
	if waitsFor(job, forebay.WaitBudget) {
		return noBudget()
	}
	if job.WaitingFor != nil {
		if held := heldBack(*job.WaitingFor); held != nil {
			held.retryAfter = f.retryAfter
			return held
		}
	}
	return f
}

// heldBack refuses a call that none of the model's deployments may take, whoever makes it. nil:
// the reason is another.
func heldBack(reason forebay.WaitReason) *failure {
	switch reason {
	case forebay.WaitBreaker:
		return &failure{status: http.StatusServiceUnavailable, kind: typeServer, code: "deployment_unavailable",
			message: "The model's deployments fail at present. Try again later."}
	case forebay.WaitPaused:
		return &failure{status: http.StatusServiceUnavailable, kind: typeServer, code: "paused", message: "Calls are paused by an operator."}
	}
	return nil
}

func waitsFor(job forebay.Job, reason forebay.WaitReason) bool {
	return job.WaitingFor != nil && *job.WaitingFor == reason
}

// noBudget refuses a call that its budget has no room for.
func noBudget() *failure {
	return &failure{status: http.StatusTooManyRequests, kind: typeRateLimit, code: "insufficient_quota", shouldRetry: &no,
		message: "Your current budget has no room for this call. A new day or month gives it room again, unless the call is larger than the whole budget."}
}
