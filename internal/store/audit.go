package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/forebayhq/forebay"
)

// Audit is what an operator did.
type Audit struct {
	Tenant, Actor, Action, Target, Detail string
}

// RecordAct appends an act to the log that changes nothing in the database.
func (s *Store) RecordAct(ctx context.Context, a Audit) error {
	_, err := transact(ctx, s, stageChange, func(t *tx) (struct{}, error) { return struct{}{}, t.audit(a) })
	return err
}

// audit appends to the log, in the transaction of the act itself. Without an action there is nothing to tell.
func (t *tx) audit(a Audit) (err error) {
	if a.Action == "" {
		return nil
	}
	if t.auditEnd == nil {
		if t.auditEnd, err = t.readAuditEnd(); err != nil {
			return err
		}
	}
	return t.appendAudit(t.auditEnd, t.now, a)
}

// auditEnd is the last row of the log.
type auditEnd struct {
	number int64
	hash   string
}

// readAuditEnd is for each transaction: another process may have written since the one before.
func (c conn) readAuditEnd() (*auditEnd, error) {
	end := &auditEnd{hash: forebay.NoAuditHash}
	_, err := c.prep("SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1").one(func(r row) {
		end.number, end.hash = r.int(0), hex.EncodeToString(r.blob(1))
	})
	if err != nil {
		return nil, fmt.Errorf("read end of audit log: %w", err)
	}
	return end, nil
}

// appendAudit chains a row to the last one. What is hashed is what a database can hold and gives back: text without NUL.
func (c conn) appendAudit(end *auditEnd, at int64, a Audit) error {
	for _, field := range []*string{&a.Tenant, &a.Actor, &a.Action, &a.Target, &a.Detail} {
		*field = strings.ToValidUTF8(strings.ReplaceAll(*field, "\x00", "\uFFFD"), "\uFFFD")
	}
	e := forebay.AuditEntry{Number: end.number + 1, PreviousHash: end.hash, At: fromMillis(at),
		Tenant: a.Tenant, Actor: a.Actor, Action: a.Action, Target: a.Target, Detail: a.Detail}
	end.number, end.hash = e.Number, e.ComputeHash()
	previous, err := hex.DecodeString(e.PreviousHash)
	if err != nil {
		return err
	}
	hash, err := hex.DecodeString(end.hash)
	if err != nil {
		return err
	}
	return c.prep("INSERT INTO audit (no, at, tenant, actor, action, target, detail, prev, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)").
		int(e.Number).int(at).text(a.Tenant).text(a.Actor).text(a.Action).text(a.Target).text(a.Detail).blob(previous).blob(hash).exec()
}

// entityAudit is the audit row of a change to a queue of messages, a topic or a subscription, or to
// what is in it.
func entityAudit(ctx context.Context, verb string, q MessageQueue, detail any) Audit {
	tenant, name, _ := strings.Cut(q.Name, "/")
	kind := "queue"
	switch {
	case q.IsTopic:
		kind = "topic"
	case q.Topic != 0:
		kind = "subscription"
	}
	a := Audit{Tenant: tenant, Actor: forebay.ActorOf(ctx), Action: verb + "-" + kind, Target: name}
	if detail != nil {
		if b, err := json.Marshal(detail); err == nil {
			a.Detail = string(b)
		}
	}
	return a
}

// auditDetail is what the audit log says of a queue's settings.
func (q MessageQueue) auditDetail() any {
	return struct {
		forebay.MessageQueueSettings
		DeadLetterFilterErrors bool `json:"dead_letter_filter_errors,omitempty"`
	}{forebay.MessageQueueSettings{
		LockSeconds: q.Lock.Seconds(), MaxDeliveryCount: q.MaxDeliveries, DefaultTTLSeconds: q.DefaultTTL.Seconds(),
		DeadLetterOnExpiration: q.DeadLetterExpired, DuplicateWindowSeconds: q.DuplicateWindow.Seconds(), RequiresSession: &q.RequiresSession,
		ForwardTo: q.ForwardTo, ForwardDeadLettersTo: q.ForwardDeadLettersTo, AutoDeleteOnIdleSeconds: q.Idle.Seconds(),
	}, q.DeadLetterFilterErrors}
}

// sameSettings reports whether a put changed nothing, as when a program makes sure at its start that
// its queue is there.
func sameSettings(before, after MessageQueue) bool {
	before.No, before.CreatedAt, before.Version, before.TopicIdle = after.No, after.CreatedAt, after.Version, after.TopicIdle
	return before == after
}

// chainAudit moves the rows of a log that was not a chain yet into the new one.
func chainAudit(c conn) error {
	end, err := c.readAuditEnd()
	if err != nil {
		return err
	}
	err = c.prep("SELECT at, tenant, actor, action, target, detail FROM audit_unchained ORDER BY no").each(func(r row) error {
		return c.appendAudit(end, r.int(0), Audit{Tenant: r.text(1), Actor: r.text(2), Action: r.text(3), Target: r.text(4), Detail: r.text(5)})
	})
	if err != nil {
		return fmt.Errorf("chain the audit log: %w", err)
	}
	_, err = c.prep("DROP TABLE audit_unchained").count() // now: the next migration may need its name
	return err
}

const auditColumns = "SELECT no, at, tenant, actor, action, target, detail, prev, hash FROM audit "

func readAudit(r row) forebay.AuditEntry {
	return forebay.AuditEntry{Number: r.int(0), At: fromMillis(r.int(1)), Tenant: r.text(2), Actor: r.text(3), Action: r.text(4),
		Target: r.text(5), Detail: r.text(6), PreviousHash: hex.EncodeToString(r.blob(7)), Hash: hex.EncodeToString(r.blob(8))}
}

// AuditEntries returns entries with a number below the given one, newest first.
func (s *Store) AuditEntries(ctx context.Context, f forebay.AuditFilter, below int64, limit int) (entries []forebay.AuditEntry, err error) {
	if below <= 0 {
		below = 1 << 62
	}
	const where = "WHERE no < ?1 AND (?2 = '' OR tenant = ?2) AND (?3 = '' OR actor = ?3) AND (?4 = '' OR action = ?4) ORDER BY no DESC LIMIT ?5 + 0"
	err = s.read(ctx, func(c conn) error {
		return c.prep(auditColumns + where).int(below).text(f.Tenant).text(f.Actor).text(f.Action).int(int64(limit)).each(func(r row) error {
			entries = append(entries, readAudit(r))
			return nil
		})
	})
	return entries, err
}

// VerifyAudit follows the chain from a head for at most limit entries. The head's own entry is looked
// at again: it must still be the one that was seen then.
func (s *Store) VerifyAudit(ctx context.Context, from forebay.AuditHead, limit int) (forebay.AuditVerification, error) {
	v := forebay.AuditVerification{Intact: true}
	at := from
	if from.Number == 0 {
		at.Hash = forebay.NoAuditHash
	}
	broken := func(number int64, reason string) error {
		v.Intact, v.Broken = false, &forebay.AuditBreak{Number: number, Reason: reason}
		return errStop
	}
	rows := 0
	seen := from.Number == 0 // the head's own entry
	err := s.read(ctx, func(c conn) error {
		return unlessStopped(c.prep(auditColumns + "WHERE no >= ? ORDER BY no LIMIT ? + 0").int(from.Number).int(int64(limit) + 1).each(func(r row) error {
			e := readAudit(r)
			if rows++; rows > limit {
				return errStop
			}
			v.Checked++
			switch hash := e.ComputeHash(); {
			case !seen && (e.Number != from.Number):
				return broken(from.Number, "the entry is missing")
			case !seen && (e.Hash != from.Hash || hash != from.Hash):
				return broken(from.Number, "the entry is not the one this head is of")
			case !seen:
				seen = true
				return nil
			case e.Number != at.Number+1:
				return broken(at.Number+1, "the entry is missing")
			case e.PreviousHash != at.Hash:
				return broken(e.Number, "it does not follow the entry before it")
			case e.Hash != hash:
				return broken(e.Number, "its hash is not that of what it says")
			}
			at = forebay.AuditHead{Number: e.Number, Hash: e.Hash}
			return nil
		}))
	})
	if err == nil && v.Intact && !seen && rows == 0 {
		_ = broken(from.Number, "the entry is missing")
	}
	v.Head, v.Done = at.String(), v.Intact && rows <= limit
	return v, err
}
