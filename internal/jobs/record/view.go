package record

import (
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// View is the job as clients see it, in the queue of that name.
func (j *Job) View(tenant, queue string) forebay.Job {
	job := forebay.Job{
		ID: j.ID, Status: j.Status, Task: j.Task, Queue: queue, Tenant: tenant, Priority: j.Priority,
		CorrelationID: request.Correlation(j.CorrelationID, j.ID), Generation: j.Generation, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		CreatedAt: j.CreatedAt, ScheduledAt: j.VisibleAt, Deadline: j.Deadline, StartedAt: j.StartedAt, CompletedAt: j.CompletedAt,
		MaxCostUSD: j.MaxCost, MaxTotalTokens: j.MaxTotalTokens, Usage: j.Usage, Metadata: request.DecodeMetadata(j.Metadata), Links: forebay.NewLinks(j.ID),
		Result: j.Result, RunningAttempt: j.Running,
	}
	if j.SessionID != "" {
		job.SessionID = &j.SessionID
	}
	if a := request.DecodeReply(j.Reply); a != nil {
		job.ReplyTo = &a.ReplyTo
	}
	if j.Waiting != "" {
		job.WaitingFor = &j.Waiting
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
