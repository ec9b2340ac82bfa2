package store

import "github.com/forebayhq/forebay"

// AdmissionStore keeps what decides whether calls may go: the states of deployments, limits and budgets.
type AdmissionStore struct {
	*QueueStore
	deployments listener[forebay.DeploymentChange]
	budgets     listener[forebay.BudgetEvent]
}

func (s *AdmissionStore) attach(*DB) {}
func (s *AdmissionStore) join(w *writer) {
	admissionKey.join(w, newAdmissionPart(w, queueKey.in(w), s))
}

// OnDeploymentChange makes f hear of what happens to deployments in transactions of this process. It runs on
// the writer's goroutine, so it must be quick.
func (s *AdmissionStore) OnDeploymentChange(f func(forebay.DeploymentChange)) { s.deployments.set(f) }

// OnBudgetEvent makes f hear of what is told of budgets by transactions of this process. It runs on the
// writer's goroutine, so it must be quick.
func (s *AdmissionStore) OnBudgetEvent(f func(forebay.BudgetEvent)) { s.budgets.set(f) }

var admissionKey = newPartKey(newAdmissionTx)
