package batches

import (
	"strings"
	"testing"
	"time"
)

// A batch whose input storage has lost can be cancelled, and expires. What was answered stays.
func TestAnInputIsGone(t *testing.T) {
	for as, end := range map[State]func(*running, string){
		Cancelled: func(r *running, id string) {
			_, err := r.Cancel(r.Context(), "acme", id)
			r.must(err)
		},
		Expired: func(r *running, _ string) { r.pass(time.Hour + time.Minute) },
	} {
		t.Run(string(as), func(t *testing.T) {
			onClocks(t, func(r *running) {
				const lines = 400
				id := r.create(r.upload(lines), "1h").ID
				r.work()
				r.answer(r.claim(7))
				f, err := r.st.Files.Used(r.Context(), r.read(id).InputFile)
				r.must(err)
				r.must(r.Blobs.Delete(r.Context(), f.Blob))
				end(r, id)
				for range 20 { // jobs end some at a time
					for _, d := range r.dueNow() {
						r.must(r.Work(r.Context(), d.No))
					}
					r.pass(2 * time.Minute)
					if r.read(id).State.Over() {
						break
					}
				}
				b := r.read(id)
				if b.State != as || b.Completed != 7 || b.Failed != 0 || b.Total != lines {
					r.Fatalf("ended: %+v", b)
				}
				if answers, failures := r.output(b.OutputFile), r.output(b.ErrorFile); len(answers) != 7 || len(failures) != int(waitingOf(lowest))-7 {
					r.Errorf("%d answers, %d failures", len(answers), len(failures))
				}
			})
		})
	}
}

// Somebody cancels the job of one line. The batch goes on, and counts it as failed.
func TestALineIsCancelled(t *testing.T) {
	onClocks(t, func(r *running) {
		id := r.create(r.upload(3), "24h").ID
		r.work()
		list := r.claim(3)
		_, err := r.Jobs.Cancel(r.Context(), "acme", list[1].ID)
		r.must(err)
		r.answer(list[:1])
		r.answer(list[2:])
		r.work()
		b := r.read(id)
		if b.State != Completed || b.Total != 3 || b.Completed != 2 || b.Failed != 1 {
			r.Errorf("ended: %+v", b)
		}
		answers, failures := r.output(b.OutputFile), r.output(b.ErrorFile)
		if len(answers) != 2 || len(failures) != 1 || !strings.Contains(failures[0], `"custom_id":"c1","response":null,"error":{"code":"request_cancelled"`) {
			r.Errorf("answers %q, failures %q", answers, failures)
		}
	})
}

// Another process looks again as soon as a lease may have lost its process, also one that was
// renewed.
func TestALeaseEnds(t *testing.T) {
	onClocks(t, func(r *running) {
		r.create(r.upload(1), "24h")
		b, ok, err := r.Store.Lease(r.Context(), r.due(1)[0])
		if err != nil || !ok {
			r.Fatal(ok, err)
		}
		r.pass(leaseFor / 2)
		r.must(r.Store.Renew(r.Context(), &b))
		r.pass(leaseFor * 3 / 4)
		if due, next, err := r.Store.Due(r.Context()); err != nil || len(due) != 0 || next > leaseFor/4 {
			r.Errorf("due %v, next after %s (%v)", due, next, err)
		}
	})
}

// dueNow returns the batches that are due.
func (r *running) dueNow() []DueBatch {
	r.Helper()
	due, _, err := r.Store.Due(r.Context())
	r.must(err)
	return due
}
