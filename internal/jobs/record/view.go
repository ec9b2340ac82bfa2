package record

import (
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// causes names what a job waits for, unless that is a deployment.
func (j *Job) causes(tenant, queue string) (list []forebay.WaitCause) {
	add := func(kind forebay.CauseKind, name string, is bool) {
		if is {
			list = append(list, forebay.WaitCause{Kind: kind, Name: name, Reason: j.Waiting})
		}
	}
	switch j.Waiting {
	case forebay.WaitPaused:
		add(forebay.CauseQueue, queue, j.PausedBy&1 != 0)
		add(forebay.CauseTenant, tenant, j.PausedBy&2 != 0)
	case forebay.WaitBudget:
		add(forebay.CauseTenant, tenant, true)
		add(forebay.CauseKey, j.KeyID, j.KeyID != "")
	case forebay.WaitSession:
		add(forebay.CauseSession, j.SessionID, true)
	}
	return list
}

// View is the job as clients see it, in the queue of that name.
func (j *Job) View(tenant, queue string) forebay.Job {
	job := forebay.Job{
		ID: j.ID, Status: j.Status, Task: j.Task, Queue: queue, Tenant: tenant, Priority: j.Priority,
		CorrelationID: request.Correlation(j.CorrelationID, j.ID), Generation: j.Generation, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		CreatedAt: j.CreatedAt, ScheduledAt: j.VisibleAt, Deadline: j.Deadline, StartedAt: j.StartedAt, CompletedAt: j.CompletedAt,
		MaxCostUSD: j.MaxCost, MaxTotalTokens: j.MaxTotalTokens, Usage: j.Usage, Metadata: request.DecodeMetadata(j.Metadata), Links: forebay.NewLinks(j.ID),
		Result: j.Result, RunningAttempt: j.Running,
	}
	// The view points to copies, so that the row need not be on the heap.
	if j.SessionID != "" {
		session := j.SessionID
		job.SessionID = &session
	}
	if a := request.DecodeReply(j.Reply); a != nil {
		job.ReplyTo = &a.ReplyTo
	}
	if j.Waiting != "" {
		waiting := j.Waiting
		job.WaitingFor, job.WaitingOn = &waiting, j.causes(tenant, queue)
	}
	if j.Failure.Code != "" {
		job.Error = &forebay.JobError{Class: j.Failure.Class, Code: j.Failure.Code, Message: request.Text(j.Failure.Message)}
	} else if len(j.LastError) > 0 {
		code, message, _ := strings.Cut(request.Text(j.LastError), ": ")
		class := forebay.ClassTransient
		if j.Waiting == forebay.WaitQuota {
			class = forebay.ClassThrottled
		}
		job.Error = &forebay.JobError{Class: class, Code: code, Message: message}
	}
	return job
}

const maxLastErrorBytes = 512

// LastError is what a message carries of a failed attempt for the next call.
func LastError(code string, message []byte) []byte {
	text := append([]byte(code+": "), message...)
	return text[:min(len(text), maxLastErrorBytes)]
}

// WaitingStatus is the status of a job whose message waits in that subqueue.
func WaitingStatus(l queue.Subqueue) forebay.Status {
	if l.Kind() == queue.SubqueueRetry {
		return forebay.StatusRetrying
	}
	return forebay.StatusQueued
}
