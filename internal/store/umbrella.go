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
	*DB
	*QueueStore
	*AuditStore
	*BusStore
	*WebhookStore
	*AdmissionStore
	*JobStore
	*OrchestrationStore
	*DocumentStore
	*KeyStore
	*TenantStore
}

// Open opens a database with all domains.
func Open(ctx context.Context, opts Options, with ...Settings) (*Store, error) {
	var settings Settings
	if len(with) > 0 {
		settings = with[0]
	}
	queues := &QueueStore{}
	s := &Store{QueueStore: queues, AuditStore: &AuditStore{}, BusStore: &BusStore{QueueStore: queues}, AdmissionStore: &AdmissionStore{QueueStore: queues},
		JobStore: &JobStore{QueueStore: queues, audited: settings.AuditEvents}, OrchestrationStore: &OrchestrationStore{QueueStore: queues}, DocumentStore: &DocumentStore{QueueStore: queues},
		KeyStore: &KeyStore{QueueStore: queues}, TenantStore: &TenantStore{queues}}
	s.JobStore.admission = s.AdmissionStore
	s.OrchestrationStore.follow(s.JobStore)
	s.DocumentStore.follow(s.JobStore)
	s.WebhookStore = &WebhookStore{QueueStore: queues}
	domains := []domain{s.QueueStore, s.AuditStore, s.BusStore, s.WebhookStore, s.AdmissionStore, s.JobStore, s.OrchestrationStore, s.DocumentStore, s.KeyStore, s.TenantStore}
	d, err := openDB(ctx, opts, domains...)
	if err != nil {
		return nil, err
	}
	s.DB = d
	s.Identify(settings.Identities)
	return s, nil
}

// BlobsInUse calls used with those of the keys that something refers to: a job or a document with the id under which
// the key stands, or an orchestration.
func (s *Store) BlobsInUse(ctx context.Context, ids map[string]string, orchestrations []string, used func(key string)) error {
	err := s.JobStore.BlobsInUse(ctx, ids, used)
	if err == nil {
		err = s.DocumentStore.BlobsInUse(ctx, ids, used)
	}
	if err == nil {
		err = s.OrchestrationStore.BlobsInUse(ctx, orchestrations, used)
	}
	return err
}
