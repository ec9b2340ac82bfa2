package documents

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/vector"
)

// On PostgreSQL, steps of documents take two round trips, however many are in the transaction. One
// begins and reads ahead, one writes and commits. Where somebody subscribes to the events, another
// one reads the rules. Each step has an entry here. Removing what is left is done by one caller in
// each process, so one is tried.
func TestRoundTripsOfDocuments(t *testing.T) {
	trips := fixture.Trips(t)
	for _, followed := range []bool{false, true} {
		d := tripsOfDocuments{TB: t, s: trips.Stores, tenant: tenantOf(t, trips.Stores, fmt.Sprint("followed-", followed))}
		mixes := d.mixes()
		most := 2 + driver.BoolInt(followed)
		if followed {
			d.follow("followed")
		}
		for name, mix := range mixes {
			allowed := most
			if name == "fail" { // what is claimed before may be asked about
				allowed++
			}
			trips.Within(t, allowed, fmt.Sprintf("%s, followed: %v", name, followed), func() []func() error { return mix(16) })
		}
		trips.Within(t, most+1, fmt.Sprintf("all, followed: %v", followed), func() (calls []func() error) {
			for _, mix := range mixes {
				calls = append(calls, mix(2)...)
			}
			return calls
		})
	}
	trips.Plans(t)
}

// BenchmarkFarAway measures the same on a PostgreSQL that is 0, 1 and 5 ms away.
func BenchmarkFarAway(b *testing.B) {
	fixture.FarAway(b, func(t testing.TB, s *stores) map[string]func(n int) []func() error {
		d := tripsOfDocuments{TB: t, s: s, tenant: tenantOf(t, s, "acme")}
		kinds := d.mixes()
		delete(kinds, "purge") // one call, which takes many documents
		for name, mix := range kinds {
			if name == "embed" || name == "fail" { // several calls for each document
				kinds[name] = func(n int) []func() error { return mix(n/batchesOf + 1)[:n] }
			}
		}
		return kinds
	})
}

type tripsOfDocuments struct {
	testing.TB
	s      *stores
	tenant int64
	serial int
}

// follow has the tenant's events of jobs and documents go to a subscription.
func (d *tripsOfDocuments) follow(tenant string) bus.MessageQueue {
	d.Helper()
	settings := bus.MessageQueue{Tenant: d.tenant, Lock: time.Minute, MaxDeliveries: 5}
	topic, sub := settings, settings
	topic.Name, topic.IsTopic = tenant+"/"+forebay.TopicJobEvents, true
	topic, _, err := d.s.Bus.PutMessageQueue(d.Context(), topic, 10)
	d.check(err)
	sub.Name = entity.SubscriptionName(topic.Name, "all")
	sub, _, err = d.s.Bus.PutSubscription(d.Context(), topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{SQLFilter: "1 = 1"}}}, 10)
	d.check(err)
	return sub
}

// uploaded is a document with a content that is being processed.
type uploaded struct {
	id  string
	rev Revision
}

func (d *tripsOfDocuments) job(id string) jobs.NewJob {
	no, err := d.s.Queues.EnsureQueue(d.Context(), "default")
	d.check(err)
	return jobs.NewJob{ID: id, Tenant: d.tenant, Queue: no, Task: "embed", MaxAttempts: 1, Input: []byte("{}"), InputSize: 2}
}

func (d *tripsOfDocuments) check(err error) {
	if d.Helper(); err != nil {
		d.Fatal(err)
	}
}

// upload is that of new content for a document.
func (d *tripsOfDocuments) upload(document string) NewRevision {
	d.serial++
	content := fmt.Sprintf("%d-%d", d.tenant, d.serial)
	rev := Revision{ID: "rev_" + content, Tenant: d.tenant, Hash: []byte(content), MediaType: "text/plain", Blob: "t/1/" + content + "/content"}
	return NewRevision{Revision: rev, DocumentID: document, Split: d.job("job_" + content + "split")}
}

func (d *tripsOfDocuments) newDocument() string {
	d.serial++
	return fmt.Sprint("d", d.serial)
}

// added are new documents, of which nothing was done yet.
func (d *tripsOfDocuments) added(many int) (list []uploaded) {
	d.Helper()
	for range many {
		list = append(list, d.addTo(d.newDocument()))
	}
	return list
}

func (d *tripsOfDocuments) addTo(document string) uploaded {
	d.Helper()
	upload := d.upload(document)
	_, err := d.s.Documents.AddRevision(d.Context(), upload)
	d.check(err)
	rev, err := d.s.Documents.RevisionOf(d.Context(), d.tenant, upload.ID)
	d.check(err)
	return uploaded{document, rev}
}

// chunksOf are chunks to store.
func newChunksOf(first, many int) (list []NewChunk) {
	for n := range many {
		list = append(list, NewChunk{Number: first + n, Text: "text"})
	}
	return list
}

const (
	splitter   = 7
	batchesOf  = 3 // that embed the chunks of a document
	chunksEach = 2 // of a batch
)

func (d *tripsOfDocuments) endSplit(u uploaded) error {
	r := SplitResult{Chunks: batchesOf * chunksEach, Rest: newChunksOf(0, batchesOf*chunksEach)}
	for n := range int64(batchesOf) {
		r.Jobs = append(r.Jobs, DocumentJob{Branch: BranchEmbedding, First: n * chunksEach, Last: (n+1)*chunksEach - 1, Job: d.job(embedJob(u.rev, n))})
	}
	r.Jobs = append(r.Jobs, DocumentJob{Branch: BranchMetadata, Job: d.job("job_" + u.rev.ID + "metadata")})
	return d.s.Documents.EndSplit(d.Context(), d.tenant, u.rev.No, splitter, "job_"+u.rev.ID[len("rev_"):]+"split", r)
}

func embedJob(rev Revision, batch int64) string { return fmt.Sprint("job_", rev.ID, "embed", batch) }

// split are documents that were split.
func (d *tripsOfDocuments) split(many int) []uploaded {
	d.Helper()
	list := d.added(many)
	for _, u := range list {
		d.check(d.s.Documents.BeginSplit(d.Context(), u.rev, splitter))
		d.check(d.endSplit(u))
	}
	return list
}

// embeds are the calls that store the vectors of a document, one for each batch.
func (d *tripsOfDocuments) embeds(u uploaded) (calls []func() error) {
	d.Helper()
	for batch := range int64(batchesOf) {
		texts, err := d.s.Documents.Unembedded(d.Context(), u.rev.No, batch*chunksEach, (batch+1)*chunksEach-1)
		d.check(err)
		var vectors []ChunkVector
		for _, text := range texts {
			unit := []float32{1, 0}
			vectors = append(vectors, ChunkVector{Chunk: text.No, Vector: vector.Bytes(unit), Code: vector.Code(unit)})
		}
		calls = append(calls, func() error {
			return d.s.Documents.RecordVectors(d.Context(), u.rev, embedJob(u.rev, batch), 2, vectors)
		})
	}
	return calls
}

func (d *tripsOfDocuments) describe(u uploaded) error {
	return d.s.Documents.RecordMetadata(d.Context(), u.rev, "job_"+u.rev.ID+"metadata", Described{})
}

// embedded are documents that need only be described.
func (d *tripsOfDocuments) embedded(many int) []uploaded {
	d.Helper()
	list := d.split(many)
	for _, u := range list {
		for _, call := range d.embeds(u) {
			d.check(call())
		}
	}
	return list
}

// claimed are jobs of the documents, under locks.
func (d *tripsOfDocuments) claimed(list []uploaded) (locked []jobs.LockedJob) {
	d.Helper()
	its := map[string]bool{}
	for _, u := range list {
		its["job_"+u.rev.ID[len("rev_"):]+"split"] = true
		for batch := range int64(batchesOf) {
			its[embedJob(u.rev, batch)] = true
		}
	}
	no, err := d.s.Queues.EnsureQueue(d.Context(), "default")
	d.check(err)
	for len(locked) < len(its) {
		some, err := d.s.Jobs.Claim(d.Context(), jobs.ClaimRequest{Subqueue: queue.SubqueueOf(no, queue.SubqueueMain), Max: 256, MaxBytes: 1 << 20,
			Lock: time.Hour, MaxDeliveries: 10, FailureSubqueue: queue.SubqueueDeadLetter})
		d.check(err)
		for _, job := range some {
			if its[job.ID] {
				locked = append(locked, job)
			}
		}
	}
	return locked
}

var callFailed = jobs.AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "bad"}

// fails are the calls that dead-letter jobs of documents.
func (d *tripsOfDocuments) fails(list []uploaded) (calls []func() error) {
	d.Helper()
	for _, job := range d.claimed(list) {
		calls = append(calls, func() error {
			return d.s.Jobs.DeadLetter(d.Context(), &job, callFailed, queue.SubqueueDeadLetter, "bad")
		})
	}
	return calls
}

// retries are the calls that retry documents whose jobs have failed, each job by so many.
func (d *tripsOfDocuments) retries(many, again int) (calls []func() error) {
	d.Helper()
	list := d.split(many)
	for _, call := range d.fails(list) {
		d.check(call())
	}
	for _, u := range list {
		row, err := d.s.Documents.Document(d.Context(), d.tenant, u.id)
		d.check(err)
		if len(row.Failed) == 0 {
			d.Fatal("nothing has failed")
		}
		by := make([][]DocumentJob, len(row.Failed))
		for i := range by {
			for range again {
				d.serial++
				by[i] = append(by[i], DocumentJob{Branch: BranchEmbedding, Job: d.job(fmt.Sprint("job_again", d.tenant, "-", d.serial))})
			}
		}
		calls = append(calls, func() error {
			n, err := d.s.Documents.RetryDocument(d.Context(), d.tenant, u.rev.ID, row.Failed, by)
			if err == nil && n != len(row.Failed) {
				err = fmt.Errorf("%d of %d", n, len(row.Failed))
			}
			return err
		})
	}
	return calls
}

func each(list []uploaded, do func(u uploaded) error) (calls []func() error) {
	for _, u := range list {
		calls = append(calls, func() error { return do(u) })
	}
	return calls
}

func (d *tripsOfDocuments) mixes() map[string]func(many int) []func() error {
	ctx, store := d.Context(), d.s.Documents
	adds := func(upload NewRevision) func() error {
		return func() error { _, err := store.AddRevision(ctx, upload); return err }
	}
	replaces := func(list []uploaded) (calls []func() error) {
		for _, u := range list {
			calls = append(calls, adds(d.upload(u.id)))
		}
		return calls
	}
	deletes := func(list []uploaded) []func() error {
		return each(list, func(u uploaded) error {
			_, err := store.DeleteDocument(ctx, d.tenant, u.id, audit.Act{Action: "delete-document", Target: u.id})
			return err
		})
	}
	return map[string]func(many int) []func() error{
		"add": func(many int) (calls []func() error) {
			for range many {
				calls = append(calls, adds(d.upload(d.newDocument())))
			}
			return calls
		},
		"replace":                  func(many int) []func() error { return replaces(d.split(many)) },
		"replace while it is made": func(many int) []func() error { list := d.split(many); d.claimed(list); return replaces(list) },
		"upload again": func(many int) (calls []func() error) {
			for range many {
				upload := d.upload(d.newDocument())
				d.check(adds(upload)())
				upload.Name = "new"
				calls = append(calls, adds(upload))
			}
			return calls
		},
		"begin to split": func(many int) []func() error {
			return each(d.added(many), func(u uploaded) error { return store.BeginSplit(ctx, u.rev, splitter) })
		},
		"begin to split again": func(many int) []func() error {
			list := d.added(many)
			for _, u := range list {
				d.check(store.BeginSplit(ctx, u.rev, splitter))
				d.check(store.AddChunks(ctx, d.tenant, u.rev.No, splitter, newChunksOf(0, 2)))
			}
			return each(list, func(u uploaded) error { return store.BeginSplit(ctx, u.rev, splitter+1) })
		},
		"store chunks": func(many int) []func() error {
			list := d.added(many)
			for _, u := range list {
				d.check(store.BeginSplit(ctx, u.rev, splitter))
			}
			return each(list, func(u uploaded) error { return store.AddChunks(ctx, d.tenant, u.rev.No, splitter, newChunksOf(0, 2)) })
		},
		"end to split": func(many int) []func() error {
			list := d.added(many)
			for _, u := range list {
				d.check(store.BeginSplit(ctx, u.rev, splitter))
			}
			return each(list, d.endSplit)
		},
		"embed": func(many int) (calls []func() error) {
			for _, u := range d.split(many) {
				calls = append(calls, d.embeds(u)...)
			}
			return calls
		},
		"describe": func(many int) []func() error { return each(d.split(many), d.describe) },
		"go live":  func(many int) []func() error { return each(d.embedded(many), d.describe) },
		"take the place of another": func(many int) []func() error {
			list := d.embedded(many)
			for i, u := range list {
				d.check(d.describe(u))
				next := d.addTo(u.id)
				d.check(store.BeginSplit(ctx, next.rev, splitter))
				d.check(d.endSplit(next))
				for _, call := range d.embeds(next) {
					d.check(call())
				}
				list[i] = next
			}
			return each(list, d.describe)
		},
		"delete":                  func(many int) []func() error { return deletes(d.split(many)) },
		"delete while it is made": func(many int) []func() error { list := d.split(many); d.claimed(list); return deletes(list) },
		"fail":                    func(many int) []func() error { return d.fails(d.split(many)) },
		"retry":                   func(many int) []func() error { return d.retries(many, 1) },
		"retry in parts":          func(many int) []func() error { return d.retries(many, 2) },
		"purge": func(many int) []func() error {
			for _, call := range deletes(d.split(many)) {
				d.check(call())
			}
			return []func() error{func() error { _, _, err := store.PurgeDocuments(ctx); return err }}
		},
	}
}
