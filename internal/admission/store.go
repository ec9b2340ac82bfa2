package admission

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Store keeps what decides whether calls may go: the states of deployments, limits and budgets.
type Store struct {
	*queue.Store
	deployments db.Listener[forebay.DeploymentChange]
	budgets     db.Listener[forebay.BudgetEvent]
}

func (s *Store) Attach(*db.DB) {}
func (s *Store) Join(w *db.Writer) {
	Key.Join(w, newAdmissionPart(w, queue.Key.In(w), s))
}

// OnDeploymentChange makes f hear of what happens to deployments in transactions of this
// process. It runs on the writer's goroutine, so it must be quick.
func (s *Store) OnDeploymentChange(f func(forebay.DeploymentChange)) { s.deployments.Set(f) }

// OnBudgetEvent makes f hear of what is told of budgets by transactions of this process. It
// runs on the writer's goroutine, so it must be quick.
func (s *Store) OnBudgetEvent(f func(forebay.BudgetEvent)) { s.budgets.Set(f) }

var Key = db.NewKey(newAdmissionTx)
