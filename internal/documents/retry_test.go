package documents

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/retry"
)

// The key that uploaded a document pays for a retry, whoever asks for it. A job that is replaced
// by others is removed from the dead letters, from where a redrive would repeat its work.
func TestRetryInParts(t *testing.T) {
	run := func(t *testing.T, s shelf) {
		service := New(Options{Store: s.Documents, Calls: Calls{BatchInputs: 2, Embed: &forebay.Task{Name: "embed"}}})
		tasks := map[string]forebay.Task{}
		for _, task := range service.Tasks(Calls{}) {
			tasks[task.Name] = task
		}
		submitter, err := jobs.New(t.Context(), jobs.Options{Store: s.Jobs, Settings: jobs.Settings{Tasks: tasks}, MaxInputBytes: 1 << 20,
			Queues: []jobs.Queue{{Name: forebay.DefaultQueue, Retry: retry.Policy{Attempts: 1}}}})
		s.check(err)
		service.Use(submitter)
		no, err := s.Queues.EnsureQueue(t.Context(), forebay.DefaultQueue)
		s.check(err)
		claim := func(most int) (taken []jobs.LockedJob) {
			t.Helper()
			for len(taken) < most {
				some, err := s.Jobs.Claim(t.Context(), jobs.ClaimRequest{Subqueue: queue.SubqueueOf(no, queue.SubqueueMain), Max: most - len(taken), MaxBytes: 1 << 20, Lock: time.Hour,
					MaxDeliveries: 10, FailureSubqueue: queue.SubqueueDeadLetter})
				s.check(err)
				taken = append(taken, some...)
			}
			return taken
		}
		for _, payer := range []string{"key_payer", ""} {
			document := "d" + payer
			s.split(document, "content"+payer, 5, payer)
			for _, job := range claim(3) {
				if job.Task == "embed" {
					s.check(s.Jobs.DeadLetter(t.Context(), &job, jobs.AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "bad"}, queue.SubqueueDeadLetter, "bad"))
				}
			}
			_, err := service.Retry(forebay.WithBudgetKey(t.Context(), "key_retrier"), "default", document)
			s.check(err)
			var again []string
			for _, job := range claim(3) {
				again = append(again, fmt.Sprintf("%s for %q", job.Task, job.KeyID))
			}
			if want := fmt.Sprintf("document-embed for %q", payer); !slices.Equal(again, []string{want, want, want}) {
				t.Errorf("done again: %q, want 3 times %q", again, want)
			}
		}
		left, err := s.Jobs.DeadLetters(t.Context(), jobs.DeadLetterQuery{Subqueue: queue.SubqueueOf(no, queue.SubqueueDeadLetter), Tenant: s.tenant, Limit: 10})
		if err != nil || len(left) != 0 {
			t.Errorf("%d jobs are left among the dead letters: %v", len(left), err)
		}
	}
	onShelves(t, run)
}
