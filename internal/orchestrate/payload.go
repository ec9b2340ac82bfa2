package orchestrate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	bounded "github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Large payloads are kept in blob storage (claim check), so that transactions and tables stay
// small. A payload is written before the transaction that refers to it. It is removed a while
// after the transaction that drops the reference. A crash in between leaves a blob that nothing
// refers to, and the sweep removes it.
//
// The history cache keeps whole histories in memory. So blob storage is only read for instances
// that are not in the cache.

// Blobs is a [blob.Store].
type Blobs interface {
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	ReadAll(ctx context.Context, key string, limit int64) ([]byte, error)
	Delete(ctx context.Context, key string) error
}

// payloads reads and writes payloads in blob storage.
type payloads struct {
	blobs Blobs // nil: all payloads stand in the database
	store *Store
}

// largeHistory is the size above which the new events of a work item go to blob storage although
// none of them is large. Smaller ones are not worth waiting for blob storage.
const largeHistory = 1 << 20

// maxConcurrent bounds the blob operations that run at once for one work item or request.
const maxConcurrent = 8

// storePayloadsTime bounds how long the payloads of one work item or request may take. The sweep
// spares blobs that are younger than an hour.
const storePayloadsTime = 30 * time.Minute

// blobTime bounds one blob operation. A large payload may take longer, by slowestRate in bytes
// per second. So storage that does not answer is soon found out, and slow storage is tolerated.
const (
	blobTime    = 10 * time.Second
	slowestRate = 128 << 10 // with other operations beside it
)

// within returns a context that ends when an operation on a payload of that size has taken too
// long.
func within(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, blobTime+time.Duration(size)*time.Second/slowestRate)
}

// storePayloads writes the large payloads to blob storage, sets their keys, and returns these.
func (s *payloads) storePayloads(ctx context.Context, tenant int64, payloads ...*Payload) (keys []string, err error) {
	if s.blobs == nil {
		return nil, nil
	}
	large := largeOf(payloads)
	if len(large) == 0 {
		return nil, nil
	}
	keys = keysOf(tenant, large)
	if err := s.storePayloadsAs(ctx, keys, large); err != nil {
		s.deleteBlobs(ctx, keys) // or the sweep does, if the time is up
		return nil, err
	}
	return keys, nil
}

// keysOf makes new keys for payloads.
func keysOf(tenant int64, large []*Payload) []string {
	keys := make([]string, len(large))
	for i, p := range large {
		keys[i] = blob.Key(tenant, OrchestrationBlobs, rand.Text()) + "/" + strconv.Itoa(len(p.Bytes))
	}
	return keys
}

// storePayloadsAs writes payloads to blob storage under these keys.
func (s *payloads) storePayloadsAs(ctx context.Context, keys []string, large []*Payload) error {
	ctx, cancel := context.WithTimeout(ctx, storePayloadsTime)
	defer cancel()
	err := forEach(ctx, len(large), func(ctx context.Context, i int) error {
		ctx, cancel := within(ctx, len(large[i].Bytes))
		defer cancel()
		return s.blobs.Put(ctx, keys[i], bytes.NewReader(large[i].Bytes), int64(len(large[i].Bytes)))
	})
	if err != nil {
		return err
	}
	for i, p := range large {
		p.Blob = keys[i]
	}
	return nil
}

// largeOf returns the payloads that are too large for the database.
func largeOf(payloads []*Payload) (large []*Payload) {
	for _, p := range payloads {
		if len(p.Bytes) > forebay.InlineBytes {
			large = append(large, p)
		}
	}
	return large
}

// orchestrationPatience bounds how long an orchestration waits for blob storage. Running its code
// again costs little, and others need its slot.
const orchestrationPatience = 5 * time.Second

// storeResultPayloads is storePayloads for the result of an orchestration work item.
func (h *taskHub) storeResultPayloads(ctx context.Context, item *OrchestrationItem, r *OrchestrationResult) (keys []string, err error) {
	return h.storeHeld(ctx, item.Token, item.Tenant, orchestrationPatience, payloadsOf(r)...)
}

// storeActivityResult is storePayloads for the result of an activity. The result may have cost
// money. So it is retried for as long as the activity may be executed here.
func (h *taskHub) storeActivityResult(ctx context.Context, a *ActivityItem, result *Payload) (keys []string, err error) {
	return h.storeHeld(ctx, a.Token, a.Tenant, math.MaxInt64, result)
}

// storeHeld is storePayloads for the outcome of a held work item, again and again within patience.
func (h *taskHub) storeHeld(ctx context.Context, token, tenant int64, patience time.Duration, payloads ...*Payload) (keys []string, err error) {
	large := largeOf(payloads)
	if len(large) == 0 || h.blobs == nil {
		return nil, nil
	}
	keys = keysOf(tenant, large) // the same for all tries, so that none leaves a blob behind
	ctx, cancel := h.bound(ctx, token)
	defer cancel(nil)
	if err = sleep.Again(ctx, patience, mayPass, func() error { return h.storePayloadsAs(ctx, keys, large) }); err != nil {
		h.deleteBlobs(context.WithoutCancel(ctx), keys) // or the sweep does
		return nil, err
	}
	return keys, nil
}

// storeOutcome stores the outcome of a held work item in the database, again and again while the
// item may be executed here. The payloads of a try that may have succeeded stay.
func (h *taskHub) storeOutcome(ctx context.Context, token int64, put []string, store func(context.Context) error) error {
	const patience = 5 * time.Minute // it keeps its place meanwhile
	ctx, cancel := h.bound(ctx, token)
	defer cancel(nil)
	err := sleep.Again(ctx, patience, mayPass, func() error {
		ctx, cancel := settling(ctx)
		defer cancel()
		err := store(ctx)
		if mayPass(err) && forebay.CodeOf(err) != forebay.CodeStorageFull {
			put = nil
		}
		return err
	})
	h.deleteIfRefused(context.WithoutCancel(ctx), err, put)
	return err
}

// load returns a payload. What comes from blob storage counts in the context's claim of memory.
// A payload that is missing there is a history.ErrUnreadable.
func (s *payloads) load(ctx context.Context, p Payload) ([]byte, error) {
	if p.Blob == "" || len(p.Bytes) > 0 {
		return p.Bytes, nil
	}
	if s.blobs == nil {
		return nil, forebay.Errorf(forebay.CodeUnavailable, "there is no blob storage here to read a payload from")
	}
	if err := bounded.Grow(ctx, int64(p.Size())); err != nil {
		return nil, err
	}
	ctx, cancel := within(ctx, p.Size())
	defer cancel()
	b, err := s.blobs.ReadAll(ctx, p.Blob, int64(p.Size()))
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		err = fmt.Errorf("%w: a payload is missing in blob storage", history.ErrUnreadable)
	}
	return b, err
}

// loadAll is load for many payloads.
func (s *payloads) loadAll(ctx context.Context, payloads []Payload) (all [][]byte, err error) {
	all = make([][]byte, len(payloads))
	var stored []int
	for i, p := range payloads {
		if all[i] = p.Bytes; p.Blob != "" {
			stored = append(stored, i)
		}
	}
	err = forEach(ctx, len(stored), func(ctx context.Context, i int) (err error) {
		all[stored[i]], err = s.load(ctx, payloads[stored[i]])
		return err
	})
	return all, err
}

// removeTime bounds the deletion of the blobs of one transaction.
const removeTime = 5 * time.Second

// deleteBlobs deletes blobs that nothing refers to. The sweep deletes those that it fails to
// delete.
func (s *payloads) deleteBlobs(ctx context.Context, keys []string) {
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	_ = forEach(ctx, len(keys), func(ctx context.Context, i int) error { return s.blobs.Delete(ctx, keys[i]) })
}

// forEach calls f for 0 to n-1, some at once, until one fails. It returns the first error.
func forEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	switch n {
	case 0:
		return nil
	case 1:
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var calls sync.WaitGroup
	next := make(chan int)
	for range min(n, maxConcurrent) {
		calls.Go(func() {
			for i := range next {
				if err := panics.Run(slog.Default(), "one of many payloads", func() error { return f(ctx, i) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	calls.Wait()
	return context.Cause(ctx)
}

// deleteIfRefused deletes the payloads of a transaction that was refused. After any other error
// the transaction may have been committed.
func (s *payloads) deleteIfRefused(ctx context.Context, err error, put []string) {
	switch forebay.CodeOf(err) {
	case forebay.CodeLockLost, forebay.CodeConflict, forebay.CodeGone, forebay.CodeNotFound, forebay.CodeStorageFull:
		s.deleteBlobs(ctx, put)
	}
}

// freedAtOnce is how many blobs RemoveFreed reads at once.
const freedAtOnce = 500

// RemoveFreed deletes the blobs that were freed before that time, and returns their number. It
// skips those that cannot be deleted and returns one such error. It stops when none of a page
// can be deleted.
func (s *payloads) RemoveFreed(ctx context.Context, before time.Time) (removed int, err error) {
	return s.removeFreed(ctx, before, freedAtOnce)
}

func (s *payloads) removeFreed(ctx context.Context, before time.Time, page int) (removed int, err error) {
	for stuck := 0; ; {
		keys, failed := s.store.FreedBlobs(ctx, before, stuck, page)
		if failed != nil || len(keys) == 0 {
			return removed, cmp.Or(failed, err)
		}
		errs := make([]error, len(keys))
		var silent atomic.Int32
		if failed := forEach(ctx, len(keys), func(ctx context.Context, i int) error {
			limited, cancel := within(ctx, 0)
			defer cancel()
			errs[i] = s.blobs.Delete(limited, keys[i])
			// The storage answers nobody.
			if limited.Err() != nil && silent.Add(1) >= maxConcurrent {
				return errs[i]
			}
			return ctx.Err()
		}); failed != nil {
			return removed, failed
		}
		var gone []string
		for i, key := range keys {
			if errs[i] != nil {
				err = errs[i]
				stuck++
			} else {
				gone = append(gone, key)
			}
		}
		if len(gone) == 0 { // the storage is to blame
			return removed, err
		}
		if failed := s.store.ForgetFreedBlobs(ctx, gone); failed != nil {
			return removed, failed
		}
		removed += len(gone)
	}
}

// payloadsOf returns the payloads of a result that may be large. Those of timers and refusals
// never are.
func payloadsOf(r *OrchestrationResult) (all []*Payload) {
	if isLarge(r.History.Bytes) {
		all = append(all, &r.History)
	}
	all = append(all, &r.Output)
	if r.Reset != nil {
		all = append(all, &r.Reset.Input)
	}
	if !r.Status.Terminal() { // an ended instance schedules none
		for i := range r.Activities {
			all = append(all, &r.Activities[i].Event)
		}
	}
	for i := range r.Messages {
		if start := r.Messages[i].Start; start != nil {
			all = append(all, &start.Input, &start.Event)
		} else {
			all = append(all, &r.Messages[i].Event)
		}
	}
	return all
}

// isLarge reports whether events that history.Append wrote are kept as a blob.
func isLarge(events []byte) bool {
	if len(events) > largeHistory {
		return true
	}
	for len(events) > forebay.InlineBytes {
		size, n := protowire.ConsumeVarint(events)
		if n < 0 || size > forebay.InlineBytes || size > uint64(len(events)) {
			return true
		}
		events = events[n+int(size):]
	}
	return false
}

// Fill reads the input and the output of an instance from blob storage.
func (s *payloads) Fill(ctx context.Context, row *OrchestrationRow) error {
	if row.InputBlob == "" && row.OutputBlob == "" {
		return nil
	}
	all, err := s.loadAll(ctx, []Payload{{Bytes: row.Input, Blob: row.InputBlob}, {Bytes: row.Output, Blob: row.OutputBlob}})
	row.Input, row.Output = all[0], all[1]
	return err
}
