package orchestrate

import (
	"errors"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// What instances tell each other. The receivers of a result are read as its transaction begins.

// OrchestrationMessage is an event for another instance of the tenant.
type OrchestrationMessage struct {
	To        string
	Execution string // that awaits it; "": any
	Event     Payload
	Effect    Effect
	// Start makes the instance. If an open instance has the id, Refusal goes back to the sender.
	Start   *NewOrchestration
	Refusal []byte
}

// receiver is the instance that is told, or started.
func (m *OrchestrationMessage) receiver(tenant int64) instanceKey {
	if m.Start != nil {
		return instanceKey{tenant, m.Start.ID}
	}
	return instanceKey{tenant, m.To}
}

// prefetch is what an operation reads of an instance that it may not change by itself: it looks
// whether others have changed it meanwhile.
func (k instanceKey) prefetch() driver.Prefetch {
	q := prefetchOrchestration(k.tenant, k.id)
	q.Shared = true
	return q
}

// receiver is an instance that is told something.
type receiver struct {
	instanceKey
	orchestrationRef
	changes int // how many the transaction had made when it was read
}

// stale reports whether the instance has changed since it was read.
func (t *tx) stale(r *receiver) bool { return t.changeOf(r) > r.changes }

// changeOf is the latest change of an instance that the transaction has made; 0: none.
func (t *tx) changeOf(r *receiver) int {
	return max(t.changedInstances[r.no], t.createdInstances[r.instanceKey])
}

// readReceivers reads instances at once. What was read as the transaction began, or for another
// operation, is good if the instance has not changed since.
func (t *tx) readReceivers(list []receiver) error {
	if t.w.Shared() {
		asks := make([]driver.Prefetch, len(list))
		for i := range list {
			if asks[i] = list[i].prefetch(); t.changeOf(&list[i]) > t.receiversAsked[list[i].instanceKey] {
				t.DropPrefetched(asks[i].Row)
			}
			if !t.Prefetched(asks[i]) {
				t.askedReceiver(list[i].instanceKey)
			}
		}
		if err := t.Prefetch(asks); err != nil {
			return err
		}
	}
	for i := range list {
		if list[i].changes = t.changes; t.w.Shared() {
			list[i].changes = t.receiversAsked[list[i].instanceKey]
		}
		var err error
		if list[i].orchestrationRef, err = t.orchestrationOf(list[i].tenant, list[i].id); err != nil {
			return err
		}
	}
	return nil
}

// askedReceiver records that an instance is read now. What another operation changes until the
// answer comes may be in it, and counts as later.
func (t *tx) askedReceiver(k instanceKey) {
	if t.receiversAsked == nil {
		t.receiversAsked = map[instanceKey]int{}
	}
	t.receiversAsked[k] = t.changes
}

// current returns an instance as it is now.
func (t *tx) current(r *receiver) (orchestrationRef, error) {
	if t.stale(r) {
		t.DropPrefetched(orchestrationRow(r.tenant, r.id))
		return t.orchestrationOf(r.tenant, r.id)
	}
	return r.orchestrationRef, nil
}

// sendMessages delivers the messages of a result. A message to an instance that has ended is
// dropped. All receivers are read at once.
func (t *tx) sendMessages(item *OrchestrationItem, r *OrchestrationResult) error {
	if len(r.Messages) == 0 {
		return nil
	}
	receivers := make([]receiver, len(r.Messages))
	for i := range r.Messages {
		receivers[i].instanceKey = r.Messages[i].receiver(item.Tenant)
	}
	for range 2 { // those that change meanwhile are read again, together with those of others
		if err := t.readReceivers(receivers); err != nil {
			return err
		}
		if !slices.ContainsFunc(receivers, func(r receiver) bool { return t.stale(&r) }) {
			break
		}
	}
	// Alone: a receiver that ends while it is told would keep what it was told.
	return t.Alone(func() error { return t.deliver(item, r, receivers) })
}

// deliver delivers the messages of a result to their receivers, which were read before.
func (t *tx) deliver(item *OrchestrationItem, r *OrchestrationResult, receivers []receiver) error {
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Start != nil {
			m.Start.parent, m.Start.KeyID = item.Instance, item.keyID
			if m.Refusal == nil { // a detached one
				m.Start.parent = 0
			}
			old, err := t.current(&receivers[i])
			if err != nil {
				return err
			}
			made, err := t.createOrchestration(*m.Start, old, AnyEnd)
			if err != nil {
				return err
			}
			if !made {
				if err := errors.Join(t.freePayload(m.Start.Input), t.freePayload(m.Start.Event)); err != nil {
					return err
				}
			}
			if !made && m.Refusal != nil && !r.Status.Terminal() {
				if err := t.addEvent(item.Instance, t.Now, true, Inline(m.Refusal)); err != nil {
					return err
				}
			}
			continue
		}
		o, err := t.current(&receivers[i])
		if err != nil {
			return err
		}
		gone := o.no == 0 || o.over || o.ending || o.changesNothing(m.Effect) || m.Execution != "" && m.Execution != o.execution
		// The child of another instance, whose id this one tried to use.
		if gone || m.Effect == Terminates && r.Status == forebay.OrchestrationTerminated && o.parent != item.Instance {
			if err := t.freePayload(m.Event); err != nil {
				return err
			}
			continue
		}
		if err := t.signal(item.Tenant, o, m.Execution != "", m.Event, m.Effect); err != nil {
			return err
		}
	}
	return nil
}
