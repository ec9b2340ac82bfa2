// Package backlog answers questions about jobs that wait. How many are there in a queue? How many
// go before one, what does it wait for, and when may it start? None of this is stored. It is
// worked out from the messages and from what is known of deployments when somebody asks.
//
// # Positions and expected starts
//
// What a waiting job waits for, its position and its start are not stored. Whoever asks for a job
// reads the states of the deployments and reserves on copies of them. The position is counted
// along the index: up to 1,000 in the job's own line, 1,000 in its tenant's other lines and 1,000
// in other tenants'. To find those of its class 128 lines are visited at most, each by one step
// in the index. Another tenant counts for as many jobs as have their turn while the job's tenant
// has the turns of those before it, by their weights. What is beyond these counts is estimated
// from a sample. Numbers are given in the order of submission. The stretch between the first
// number that was counted and the job is divided into 512 pieces. One number of each piece is
// looked up, and the share of those that are ahead tells how many there are. So the cost does not
// depend on how many jobs, tenants, priorities and classes wait.
//
// The start is what quota.State.Drain says of the work ahead, spread over the deployments, at the
// mean charge of the last minute's calls. It is not earlier than the rate allows at which the
// deployments were called in the last 15 seconds. In the retry lane its rate, places and budget
// take the place of that rate. Behind a tenant's limit the mean duration of the calls of its
// latest 64 jobs says when the slots that are taken are free. A job whose time has not come
// starts then at the earliest. Counted from then, it starts after all that is ahead of it, and
// after what becomes ready within the second before it. Neither limit nor calls: no estimate.
//
// # Counts
//
// Numbers of what stands in a queue are counted along the index, per line and kind, up to some
// ten thousand each. A count that stopped there is marked (counts_capped): there are at least so
// many.
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
