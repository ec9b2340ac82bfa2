// Package flows decides in which order the jobs of a subqueue are served, without I/O.
//
// The jobs of a subqueue are divided into flows: one for each tenant, priority and class. The
// class stands for what a job calls, so a job that may not be called now holds back only its
// own class. A flow is first come, first served. Package fairqueue chooses between flows. It
// first chooses the tenant, by weight and by the tokens that its jobs take. Then it chooses
// among the tenant's flows, by priority and age. So a tenant with ten jobs does not wait behind
// another tenant's ten thousand.
//
// A [Set] is what one process remembers of a subqueue's flows. It is a hint: the database has the
// jobs. Each process shares out what it delivers itself.
//
// # Flows
//
// For jobs, rank is the id of a flow. There is one for each tenant, priority and class of what
// its jobs call (see Admission) that has messages in the subqueue. A scan reads the beginnings of
// the flows, so a tenant with ten thousand waiting jobs is no obstacle. internal/fairqueue
// decides whose job goes next, in two steps.
//
//   - The tenant comes first, by start-time fair queueing. Each tenant has a virtual time. A job
//     moves it on by the tokens reserved for its call, answers included, divided by the tenant's
//     weight. For HTTP functions the size of the input counts. The tenant with the earliest time
//     goes next. A tenant that was idle, paused, at its concurrency limit or out of budget begins
//     where the others are, with neither credit nor debt. No priority and no age of one tenant's
//     jobs takes anything from another's share.
//   - A scarce deployment is shared apart. It is scarce while it has held jobs of the subqueue in
//     the last minute. It then has virtual times of its own, in minutes of what is scarcest there,
//     tokens or requests (internal/jobs/scarce.go). They order the jobs that are to call it, in
//     the places that these have in the subqueue. So a tenant that is busy with another model
//     keeps its share of the scarce one. A tenant whose job is held keeps its place until the job
//     goes.
//   - Within the tenant the priority decides. A job gains a level for each half minute that it
//     waits. One job in eight of the tenant, and of each class of its jobs, comes from behind its
//     first level, so that no priority starves. A scan that finds no such job owes one, but never
//     more than one.
//
// Each process keeps virtual times and turns for what it delivers. A share of each process's
// deliveries is the same share of all. A scan asks 32 flows at most (internal/flows/choose.go).
// They are the first flows of the tenants that are next, the first of each class, and those asked
// longest ago. It serves nobody whose turn is more than one claim after that of a tenant it has
// not asked. Classes whose jobs were held last time get eight of the 32 as long as others want
// the rest. A subqueue with one tenant, one priority and one model is one flow, at the cost of
// one.
package flows

import (
	"fmt"
	"math"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/fairqueue"
)

// The id of a flow is a number of tenant, class and rank, in this order. It is the column "rank"
// of a job's message.
const (
	// PerClass is how many ids a class of a tenant has: one for each priority, and some to spare.
	PerClass = 16
	// PerTenant is how many ids a tenant has.
	PerTenant = PerClass * Classes
)

// Classes is the number of classes. Class 0 is for jobs that call nothing.
const Classes = fairqueue.Classes

// ID returns the id of a flow.
func ID(tenant int64, class, priority int) int64 {
	return tenant*PerTenant + int64(class*PerClass+forebay.MaxPriority-priority)
}

// TenantOf returns the tenant of a flow.
func TenantOf(flow int64) int64 { return flow / PerTenant }

// ClassOf returns the class of a flow.
func ClassOf(flow int64) int64 { return flow % PerTenant / PerClass }

// RankOf returns the rank of a flow within its class: 0 is the highest priority.
func RankOf(flow int64) int64 { return flow % PerClass }

// SQLTenantOf is TenantOf as an SQL expression.
func SQLTenantOf(flow string) string { return fmt.Sprintf("%s / %d", flow, PerTenant) }

// SQLClassOf is ClassOf as an SQL expression.
func SQLClassOf(flow string) string {
	return fmt.Sprintf("%s %% %d / %d", flow, PerTenant, PerClass)
}

// SQLRankOf is RankOf as an SQL expression.
func SQLRankOf(flow string) string { return fmt.Sprintf("%s %% %d", flow, PerClass) }

// SQLList lists the flows of subqueue ?1. It takes as many steps in the index as there are flows.
const SQLList = `
WITH RECURSIVE l(line) AS (SELECT min(flow) FROM messages WHERE subqueue = ?1
  UNION ALL SELECT (SELECT min(m.flow) FROM messages m WHERE m.subqueue = ?1 AND m.flow > l.line) FROM l WHERE l.line IS NOT NULL)
SELECT line FROM l WHERE line IS NOT NULL`

// Shares returns a tenant's weight among those that wait. A nil Shares gives each the weight 1.
type Shares func(tenant int64) (weight float64)

// Weight returns a tenant's weight, which is above 0.
func (shares Shares) Weight(tenant int64) float64 {
	if shares != nil {
		if weight := shares(tenant); weight > 0 {
			return weight
		}
	}
	return 1
}

// Cost is by how much so many tokens of a tenant move its virtual time on.
func (shares Shares) Cost(tenant int64, tokens float64) float64 {
	return tokens / shares.Weight(tenant)
}

// never is a time that does not come.
const never = math.MaxInt64
