package stores

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/batches"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/documents"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
	"github.com/forebayhq/forebay/internal/responses"
	"github.com/forebayhq/forebay/internal/signin"
	"github.com/forebayhq/forebay/internal/tenant"
	"github.com/forebayhq/forebay/internal/webhook"
)

// Settings are what domains are to know before the database is opened.
type Settings struct {
	// AuditEvents are the types of events of jobs that this process appends to the audit log.
	AuditEvents []forebay.EventType
	// Identities tell what this process calls by the names of deployments.
	Identities admission.Identities
}

// Stores is a database with all domains.
type Stores struct {
	DB             *db.DB
	Queues         *queue.Store
	Audit          *audit.Store
	Bus            *bus.Store
	Webhooks       *webhook.Store
	Admission      *admission.Store
	Jobs           *jobs.Store
	Reports        *report.Store
	Backlog        *backlog.Reader
	Orchestrations *orchestrate.Store
	Documents      *documents.Store
	Files          *files.Store
	Responses      *responses.Store
	Batches        *batches.Store
	Keys           *keys.Store
	Tenants        *tenant.Store
	SignIns        *signin.Store
}

// Open opens a database with all domains.
func Open(ctx context.Context, opts db.Options, with ...Settings) (*Stores, error) {
	var settings Settings
	if len(with) > 0 {
		settings = with[0]
	}
	queues := &queue.Store{}
	s := &Stores{Queues: queues, Audit: &audit.Store{}, Bus: bus.NewStore(queues), Admission: &admission.Store{Store: queues},
		Jobs: &jobs.Store{Store: queues, Audited: settings.AuditEvents}, Orchestrations: &orchestrate.Store{Store: queues}, Documents: &documents.Store{Store: queues}, Files: &files.Store{Store: queues}, Responses: &responses.Store{Store: queues}, Batches: &batches.Store{Store: queues},
		Reports: &report.Store{Store: queues}, Keys: &keys.Store{Store: queues}, Tenants: &tenant.Store{Store: queues}, SignIns: &signin.Store{Store: queues}}
	s.Jobs.Admission = s.Admission
	s.Backlog = &backlog.Reader{Queues: queues, Admission: s.Admission}
	s.Orchestrations.Follow(s.Jobs)
	s.Documents.Follow(s.Jobs)
	s.Responses.Follow(s.Jobs)
	s.Batches.Follow(s.Jobs)
	s.Batches.WhenEnded(func(t *db.Tx, b batches.Batch) error {
		return events.PublishObjects(t, []events.ObjectEnd{{Tenant: b.Tenant, Kind: forebay.EventType("batch." + string(b.State)), ID: b.ID}})
	})
	s.Webhooks = &webhook.Store{Store: queues}
	domains := []db.Domain{s.Queues, s.Audit, s.Bus, s.Webhooks, s.Admission, s.Jobs, s.Reports, s.Orchestrations, s.Documents, s.Files, s.Batches, s.Responses, s.Keys, s.Tenants, s.SignIns}
	d, err := db.Open(ctx, opts, domains...)
	if err != nil {
		return nil, err
	}
	s.DB = d
	s.Admission.Identify(settings.Identities)
	return s, nil
}

// Payloads returns the store of jobs' large payloads in blob storage.
func (s *Stores) Payloads(blobs *blob.Store) *payload.Store {
	return payload.New(payload.Options{Blobs: blobs, Recorded: s.Jobs.BlobRecorded, Settled: s.DB.Settled, InUse: s.BlobsInUse})
}

// BlobsInUse calls used with each key that something refers to. That is a job, a document, a
// response or a file with the id under which the key stands, or an orchestration.
func (s *Stores) BlobsInUse(ctx context.Context, ids map[string]string, orchestrations []string, used func(key string)) error {
	err := s.Jobs.BlobsInUse(ctx, ids, used)
	if err == nil {
		err = s.Documents.BlobsInUse(ctx, ids, used)
	}
	if err == nil {
		err = s.Files.BlobsInUse(ctx, ids, used)
	}
	if err == nil {
		err = s.Responses.BlobsInUse(ctx, ids, used)
	}
	if err == nil {
		err = s.Orchestrations.BlobsInUse(ctx, orchestrations, used)
	}
	return err
}
