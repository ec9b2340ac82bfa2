package store

import (
	"sync/atomic"

	"github.com/forebayhq/forebay"
)

// listener is a function that hears of something; none until it is set.
type listener[T any] struct{ f atomic.Pointer[func(T)] }

func (l *listener[T]) set(f func(T)) { l.f.Store(&f) }

func (l *listener[T]) tell(v T) {
	if f := l.f.Load(); f != nil {
		(*f)(v)
	}
}

// OnCommit makes f hear of every transaction of this process. It runs on the goroutine that made it, of which
// there are two on PostgreSQL, so it must be quick.
func (s *Store) OnCommit(f func(Commit)) { s.watches.commits.set(f) }

// OnJobsChanged makes f hear what each of those transactions made of jobs.
func (s *Store) OnJobsChanged(f func(JobTally)) { s.watches.jobs.set(f) }

// OnActivitiesLost makes f hear how many attempts of activities such a transaction found lost: of which nobody heard
// again.
func (s *Store) OnActivitiesLost(f func(n int)) { s.watches.activities.set(f) }

// OnDeploymentChange makes f hear of what happens to deployments in transactions of this process. It runs on
// the writer's goroutine, so it must be quick.
func (s *Store) OnDeploymentChange(f func(forebay.DeploymentChange)) { s.watches.deployments.set(f) }

// OnBudgetEvent makes f hear of what is told of budgets by transactions of this process. It runs on the
// writer's goroutine, so it must be quick.
func (s *Store) OnBudgetEvent(f func(forebay.BudgetEvent)) { s.watches.budgets.set(f) }

// OnCancelled makes f hear of the locks that a cancel in another process voided.
func (s *Store) OnCancelled(f func(token int64)) { s.watches.cancelled.set(f) }

// OnWebhooksChanged makes f hear of it when another process has changed the webhooks, or may have.
func (s *Store) OnWebhooksChanged(f func()) { s.watches.webhooks.set(func(struct{}) { f() }) }

// OnKeysChanged makes f hear of it when another process has made or revoked an API key. It must be quick.
func (s *Store) OnKeysChanged(f func()) { s.watches.keys.set(func(struct{}) { f() }) }
