package store

import (
	"context"
	"sync/atomic"

	"github.com/forebayhq/forebay"
)

// QueueStore knows tenants and queues by name.
type QueueStore struct {
	*DB
	names names
}

func (s *QueueStore) attach(d *DB) { s.DB = d }
func (s *QueueStore) join(w *writer) {
	queueKey.join(w, &queuePart{writer: w, paused: map[int64]bool{}})
}

// AuditStore keeps the audit log.
type AuditStore struct{ *DB }

func (s *AuditStore) attach(d *DB)   { s.DB = d }
func (s *AuditStore) join(w *writer) { auditKey.join(w, &auditPart{}) }

// BusStore keeps plain messages, their queues and topics.
type BusStore struct {
	*QueueStore
	topics  topicRules
	endSlow func() // ends the goroutines that judge what takes long; nil: there are none
}

func (s *BusStore) attach(*DB)     {}
func (s *BusStore) join(w *writer) { busKey.join(w, newBusPart(w, queueKey.in(w), &s.topics)) }

func (s *BusStore) start(ctx context.Context, opts Options) error {
	s.startJudging()
	if opts.Serve {
		return s.PurgeDropped(ctx)
	}
	return nil
}

func (s *BusStore) stop() {
	if s.endSlow != nil {
		s.endSlow()
	}
}

// WebhookStore keeps webhooks, and what became of their deliveries.
type WebhookStore struct {
	*QueueStore
	changes listener[struct{}] // in other processes
}

func (s *WebhookStore) attach(*DB) {}

func (s *WebhookStore) join(w *writer) {
	bus := busKey.in(w)
	p := &webhookPart{bus: bus}
	bus.webhooks = p
	webhookKey.join(w, p)
}

func (s *WebhookStore) received(n *notification) {
	if n.lost || n.has(wordWebhooks) {
		s.changes.tell(struct{}{})
	}
}

// OnWebhooksChanged makes f hear of it when another process has changed the webhooks, or may have.
func (s *WebhookStore) OnWebhooksChanged(f func()) { s.changes.set(func(struct{}) { f() }) }

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

// JobStore keeps jobs.
type JobStore struct {
	*QueueStore
	admission *AdmissionStore
	audited   []forebay.EventType      // events that the audit log is to have
	ended     []func(*tx, Ended) error // called within the transaction that ends a job
	redriven  []func(t *tx, seq int64) error
	tallies   listener[JobTally]
	cancelled listener[int64] // tokens of locks that a cancel in another process voided
}

func (s *JobStore) attach(*DB) {}

func (s *JobStore) join(w *writer) {
	admission := admissionKey.in(w)
	p := newJobsPart(w, queueKey.in(w), admission, s)
	admission.jobs = p
	jobsKey.join(w, p)
}

func (s *JobStore) received(n *notification) {
	n.each(wordCancelled, func(token, _, _ int64) { s.cancelled.tell(token) })
}

// OnJobsChanged makes f hear what each transaction of this process made of jobs. It runs on the goroutine that made it,
// so it must be quick.
func (s *JobStore) OnJobsChanged(f func(JobTally)) { s.tallies.set(f) }

// Ended is a generation of a job that has ended.
type Ended struct {
	Seq        int64
	Status     forebay.Status
	Generation int
	Failure    Failure
	Uncalled   bool // it is known to be no activity of an orchestration
}

// WhenEnded has f called in each transaction that ends a generation of a job, before anything else of the database is
// told. It is called once for each domain that has to know, before the database is opened.
func (s *JobStore) WhenEnded(f func(*tx, Ended) error) { s.ended = append(s.ended, f) }

// WhenRedriven is WhenEnded for a job that is sent back.
func (s *JobStore) WhenRedriven(f func(t *tx, seq int64) error) { s.redriven = append(s.redriven, f) }

// OnCancelled makes f hear of the locks that a cancel in another process voided.
func (s *JobStore) OnCancelled(f func(token int64)) { s.cancelled.set(f) }

// OrchestrationStore keeps orchestrations.
type OrchestrationStore struct {
	*QueueStore
	lost listener[int]
}

func (s *OrchestrationStore) attach(*DB) {}

func (s *OrchestrationStore) follow(jobs *JobStore) {
	jobs.WhenEnded(func(t *tx, e Ended) error {
		if e.Uncalled {
			return nil
		}
		return orchestrateKey.of(t).answerCaller(e)
	})
}

func (s *OrchestrationStore) join(w *writer) {
	orchestrateKey.join(w, &orchestratePart{writer: w, lost: &s.lost})
}

// OnActivitiesLost makes f hear how many attempts of activities a transaction of this process found lost: of which nobody
// heard again. It must be quick.
func (s *OrchestrationStore) OnActivitiesLost(f func(n int)) { s.lost.set(f) }

// DocumentStore keeps documents.
type DocumentStore struct {
	*QueueStore
	vectors atomic.Pointer[VectorSupport] // nil: not looked for yet
}

func (s *DocumentStore) attach(*DB) {}

func (s *DocumentStore) follow(jobs *JobStore) {
	jobs.WhenEnded(func(t *tx, e Ended) error {
		if e.Status == forebay.StatusSucceeded {
			return nil
		}
		return documentsKey.of(t).documentJobFailed(e)
	})
	jobs.WhenRedriven(func(t *tx, seq int64) error { return t.prep(sqlDocumentJobAgain).int(seq).exec() })
}

func (s *DocumentStore) join(w *writer) { documentsKey.join(w, &documentsPart{}) }

// KeyStore keeps API keys.
type KeyStore struct {
	*QueueStore
	changes listener[struct{}] // in other processes
}

func (s *KeyStore) attach(*DB)   {}
func (s *KeyStore) join(*writer) {}

func (s *KeyStore) received(n *notification) {
	if n.has(wordKeys) { // one that was missed is found by looking
		s.changes.tell(struct{}{})
	}
}

// OnKeysChanged makes f hear of it when another process has made or revoked an API key. It must be quick.
func (s *KeyStore) OnKeysChanged(f func()) { s.changes.set(func(struct{}) { f() }) }

// TenantStore keeps the settings of tenants, and counts what they have.
type TenantStore struct{ *QueueStore }

func (s *TenantStore) attach(*DB)   {}
func (s *TenantStore) join(*writer) {}
