// Package backlog answers questions about jobs that wait. How many are in a queue, and how many
// go before one? What does a job wait for, and when may it start? None of this is stored. It is
// worked out from the messages and from what is known of deployments when somebody asks.
package backlog

import (
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/queue"
)

// Reader reads the backlog.
type Reader struct {
	Queues    *queue.Store
	Admission *admission.Store
}
