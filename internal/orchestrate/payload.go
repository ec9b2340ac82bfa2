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

// Large payloads are kept in blob storage (claim-check), so that neither the transactions nor the tables grow with them. Each is written before the
// transaction that refers to it, and removed a while after the one that forgets it. What a crash leaves behind in between belongs to nobody, and the
// sweep removes it. The histories that turns are replayed from stay in memory whole: of those only processes that do not know an instance yet read
// from blob storage.

// Blobs is a [blob.Store].
type Blobs interface {
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	ReadAll(ctx context.Context, key string, limit int64) ([]byte, error)
	Delete(ctx context.Context, key string) error
}

// payloads keeps payloads in blob storage.
type payloads struct {
	blobs Blobs // nil: all payloads stand in the database
	store *Store
}

// largeTurn is from where on the events of a turn are one payload though none of them is large: many small ones are no reason to wait for
// blob storage.
const largeHistory = 1 << 20

// atOnce bounds the payloads that are written, read or removed at once for one turn or request.
const maxConcurrent = 8

// keepTime bounds how long the payloads of one turn or request may take. The sweep takes none for forgotten that is younger than an hour.
const storePayloadsTime = 30 * time.Minute

// blobTime bounds how long one payload is written, read or removed, but for slowestRate, in bytes per second, which a large one may take besides: so
// storage that answers nothing is soon known to be away, and one that is slow is not.
const (
	blobTime    = 10 * time.Second
	slowestRate = 128 << 10 // with others beside it
)

// within returns a context that ends when a payload of that size has taken too long.
func within(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, blobTime+time.Duration(size)*time.Second/slowestRate)
}

// keep puts the payloads that are large into blob storage, and names them by their keys, which it returns.
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
		s.deleteBlobs(ctx, keys) // unless the time is up: then the sweep does
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

// keepAs puts payloads into blob storage under these keys.
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

// Pauses between tries to store what a turn or an activity has come to, while blob storage cannot be used.
const (
	firstStorePause = 100 * time.Millisecond
	maxStorePause   = 5 * time.Second
)

// keepTurnTime bounds how long a turn waits for blob storage that is not available. Its code only decides, and others need its place.
const orchestrationPatience = 5 * time.Second

// keepTurn is keep for what a turn has led to.
func (h *taskHub) storeResultPayloads(ctx context.Context, item *OrchestrationItem, r *OrchestrationResult) (keys []string, err error) {
	return h.storeHeld(ctx, item.Token, item.Tenant, orchestrationPatience, payloadsOf(r)...)
}

// keepResult is keep for the result of an activity. It was paid for, so while blob storage is not available it is not given up, until the activity
// is not to be carried out here any more.
func (h *taskHub) storeActivityResult(ctx context.Context, a *ActivityItem, result *Payload) (keys []string, err error) {
	return h.storeHeld(ctx, a.Token, a.Tenant, math.MaxInt64, result)
}

// keepHeld is keep for the outcome of what is carried out here under a lock, again and again for that long.
func (h *taskHub) storeHeld(ctx context.Context, token, tenant int64, patience time.Duration, payloads ...*Payload) (keys []string, err error) {
	large := largeOf(payloads)
	if len(large) == 0 || h.blobs == nil {
		return nil, nil
	}
	keys = keysOf(tenant, large) // the same for all tries: what one has left behind is another's
	ctx, cancel := h.bound(ctx, token)
	defer cancel(nil)
	begun := time.Now()
	for pause := firstStorePause; ; pause = min(2*pause, maxStorePause) {
		if err = h.storePayloadsAs(ctx, keys, large); err == nil {
			return keys, nil
		}
		if !isTransient(err) || time.Since(begun) > patience || sleep.For(ctx, pause) != nil {
			h.deleteBlobs(context.WithoutCancel(ctx), keys) // or the sweep does
			return nil, err
		}
	}
}

// load returns a payload from wherever it is. What comes from blob storage is counted in the context's claim of memory. One that is not there any more is an errHistory.
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

// loadAll is load for many.
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

// removeTime bounds how long the blobs of one transaction are deleted.
const removeTime = 5 * time.Second

// remove deletes blobs that nothing refers to. What it fails to delete the sweep does.
func (s *payloads) deleteBlobs(ctx context.Context, keys []string) {
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	_ = forEach(ctx, len(keys), func(ctx context.Context, i int) error { return s.blobs.Delete(ctx, keys[i]) })
}

// each calls f for 0 to n-1, some at once, until one fails, and returns the first error.
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

// refused removes the payloads that were put for a transaction, if it was refused. After any other error it may have come about.
func (s *payloads) deleteIfRefused(ctx context.Context, err error, put []string) {
	switch forebay.CodeOf(err) {
	case forebay.CodeLockLost, forebay.CodeConflict, forebay.CodeGone, forebay.CodeNotFound, forebay.CodeStorageFull:
		s.deleteBlobs(ctx, put)
	}
}

// freedAtOnce is how many blobs RemoveFreed removes between two looks.
const freedAtOnce = 500

// RemoveFreed removes the blobs that no instance has had any use for since before that time, and returns how many. Those that cannot be removed
// keep no others from it, unless they are all of a page; of them one error is returned.
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
			if limited.Err() != nil && silent.Add(1) >= maxConcurrent { // it answers nobody
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
		if len(gone) == 0 { // it is the storage
			return removed, err
		}
		if failed := s.store.ForgetFreedBlobs(ctx, gone); failed != nil {
			return removed, failed
		}
		removed += len(gone)
	}
}

// payloadsOf are those of a turn's result that may be large. The timers' and the refusals never are.
func payloadsOf(r *OrchestrationResult) (all []*Payload) {
	if isLarge(r.History.Bytes) {
		all = append(all, &r.History)
	}
	all = append(all, &r.Output)
	if r.Reset != nil {
		all = append(all, &r.Reset.Input)
	}
	if !r.Status.Terminal() { // which carries none out
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

// isLarge reports whether events of a history, as appendEvent writes them, are to be kept as a payload.
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

// fill reads the input and the output of an instance from blob storage.
func (s *payloads) Fill(ctx context.Context, row *OrchestrationRow) error {
	if row.InputBlob == "" && row.OutputBlob == "" {
		return nil
	}
	all, err := s.loadAll(ctx, []Payload{{Bytes: row.Input, Blob: row.InputBlob}, {Bytes: row.Output, Blob: row.OutputBlob}})
	row.Input, row.Output = all[0], all[1]
	return err
}
