package store

import (
	"context"

	"github.com/forebayhq/forebay"
)

// Settings are what domains are to know before the database is opened.
type Settings struct {
	// AuditEvents are the types of events of jobs that this process appends to the audit log.
	AuditEvents []forebay.EventType
	// Identities tell what this process calls by the names of deployments.
	Identities Identities
}

// Store is a database with all domains.
type Store struct {
	DB             *DB
	Queues         *QueueStore
	Audit          *AuditStore
	Bus            *BusStore
	Webhooks       *WebhookStore
	Admission      *AdmissionStore
	Jobs           *JobStore
	Orchestrations *OrchestrationStore
	Documents      *DocumentStore
	Keys           *KeyStore
	Tenants        *TenantStore
}

// Open opens a database with all domains.
func Open(ctx context.Context, opts Options, with ...Settings) (*Store, error) {
	var settings Settings
	if len(with) > 0 {
		settings = with[0]
	}
	queues := &QueueStore{}
	s := &Store{Queues: queues, Audit: &AuditStore{}, Bus: &BusStore{QueueStore: queues}, Admission: &AdmissionStore{QueueStore: queues},
		Jobs: &JobStore{QueueStore: queues, audited: settings.AuditEvents}, Orchestrations: &OrchestrationStore{QueueStore: queues}, Documents: &DocumentStore{QueueStore: queues},
		Keys: &KeyStore{QueueStore: queues}, Tenants: &TenantStore{queues}}
	s.Jobs.admission = s.Admission
	s.Orchestrations.follow(s.Jobs)
	s.Documents.follow(s.Jobs)
	s.Webhooks = &WebhookStore{QueueStore: queues}
	domains := []domain{s.Queues, s.Audit, s.Bus, s.Webhooks, s.Admission, s.Jobs, s.Orchestrations, s.Documents, s.Keys, s.Tenants}
	d, err := openDB(ctx, opts, domains...)
	if err != nil {
		return nil, err
	}
	s.DB = d
	s.Admission.Identify(settings.Identities)
	return s, nil
}

// BlobsInUse calls used with those of the keys that something refers to: a job or a document with the id under which
// the key stands, or an orchestration.
func (s *Store) BlobsInUse(ctx context.Context, ids map[string]string, orchestrations []string, used func(key string)) error {
	err := s.Jobs.BlobsInUse(ctx, ids, used)
	if err == nil {
		err = s.Documents.BlobsInUse(ctx, ids, used)
	}
	if err == nil {
		err = s.Orchestrations.BlobsInUse(ctx, orchestrations, used)
	}
	return err
}
