package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
)

// Audit is what an operator did.
type Audit struct {
	Tenant, Actor, Action, Target, Detail string
}

// RecordAct appends an act to the log that changes nothing in the database.
func (s *AuditStore) RecordAct(ctx context.Context, a Audit) error {
	_, err := transactIn(ctx, auditKey, s.writer, op{stage: stageChange}, func(t *auditTx) (struct{}, error) { return struct{}{}, t.append(a) })
	return err
}

// auditIn appends to the log, in the transaction of the act itself. Without an action there is nothing to tell.
func auditIn(t *tx, a Audit) error { return auditKey.of(t).append(a) }

func (t *auditTx) append(a Audit) (err error) {
	if a.Action == "" {
		return nil
	}
	if t.end == nil {
		if t.end, err = readAuditEnd(t.conn); err != nil {
			return err
		}
	}
	a = a.storable()
	if err := appendAudit(t.conn, t.end, t.now, a); err != nil || a.Actor == forebay.ServerActor && isJobEvent(a.Action) {
		return err
	}
	return addAuditAct(t.conn, t.end.number, a)
}

// sqlAddAuditAct finds the number there only where somebody has cut the end of the log off: acts go on all the same.
var sqlAddAuditAct = merges("INSERT INTO audit_acts (no, tenant, actor, action) VALUES (?, ?, ?, ?) ON CONFLICT (no) DO NOTHING",
	"INSERT INTO audit_acts (no, tenant, actor, action) SELECT p1, p2, p3, p4 FROM %s ON CONFLICT (no) DO NOTHING")

func addAuditAct(c conn, number int64, a Audit) error {
	return c.prep(sqlAddAuditAct).int(number).text(a.Tenant).text(a.Actor).text(a.Action).exec()
}

// isJobEvent reports whether entries of this action that nobody made are events of jobs. All others stand in audit_acts too.
func isJobEvent(action string) bool {
	return slices.Contains(forebay.JobEventTypes, forebay.EventType(action))
}

// auditEnd is the last row of the log.
type auditEnd struct {
	number int64
	hash   string
}

// readAuditEnd is for each transaction: another process may have written since the one before.
func readAuditEnd(c conn) (*auditEnd, error) {
	end := &auditEnd{hash: forebay.NoAuditHash}
	_, err := c.prep("SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1").one(func(r row) {
		end.number, end.hash = r.int(0), hex.EncodeToString(r.blob(1))
	})
	if err != nil {
		return nil, fmt.Errorf("read end of audit log: %w", err)
	}
	return end, nil
}

// storable is what a database can hold and gives back, and so what is hashed: text without NUL.
func (a Audit) storable() Audit {
	for _, field := range []*string{&a.Tenant, &a.Actor, &a.Action, &a.Target, &a.Detail} {
		*field = strings.ToValidUTF8(strings.ReplaceAll(*field, "\x00", "\uFFFD"), "\uFFFD")
	}
	return a
}

// appendAudit chains a row to the last one.
func appendAudit(c conn, end *auditEnd, at int64, a Audit) error {
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

const (
	auditColumns = "SELECT e.no, e.at, e.tenant, e.actor, e.action, e.target, e.detail, e.prev, e.hash FROM "
	auditFilter  = " AND (?3 = '' OR e.tenant = ?3) AND (?4 = '' OR e.actor = ?4) AND (?5 = '' OR e.action = ?5) "

	sqlVerifyAudit  = auditColumns + "audit e WHERE e.no >= ? ORDER BY e.no LIMIT ? + 0"
	sqlAuditEntries = auditColumns + "audit e WHERE e.no < ?1 AND e.no >= ?2" + auditFilter + "ORDER BY e.no DESC LIMIT ?6 + 0"
	sqlAuditAct     = "SELECT no FROM audit_acts WHERE no < ? ORDER BY no DESC LIMIT 1 OFFSET ? + 0"
)

// sqlAuditActs looks an entry up only once the act fits.
var sqlAuditActs = auditColumns + "audit_acts a CROSS JOIN audit e ON e.no = a.no WHERE a.no < ?1 AND a.no >= ?2" +
	strings.ReplaceAll(auditFilter, "e.", "a.") + auditFilter + "ORDER BY a.no DESC LIMIT ?6 + 0"

func readAudit(r row) forebay.AuditEntry {
	return forebay.AuditEntry{Number: r.int(0), At: fromMillis(r.int(1)), Tenant: r.text(2), Actor: r.text(3), Action: r.text(4),
		Target: r.text(5), Detail: r.text(6), PreviousHash: hex.EncodeToString(r.blob(7)), Hash: hex.EncodeToString(r.blob(8))}
}

// maxAuditLook bounds the entries that one page is selected from.
const maxAuditLook = 100_000

// AuditEntries returns entries with a number below the given one (0: from the last on), newest first. There may be more below next, also
// where they are fewer than limit: of entries that a filter leaves out only so many are looked at. A next of 0 is the end.
func (s *AuditStore) AuditEntries(ctx context.Context, f forebay.AuditFilter, below int64, limit int) (entries []forebay.AuditEntry, next int64, err error) {
	return s.auditEntries(ctx, f, below, limit, maxAuditLook)
}

func (s *AuditStore) auditEntries(ctx context.Context, f forebay.AuditFilter, below int64, limit, look int) (entries []forebay.AuditEntry, next int64, err error) {
	err = s.read(ctx, func(c conn) error {
		entries = nil
		if below <= 0 {
			end, err := readAuditEnd(c)
			if err != nil {
				return err
			}
			below = end.number + 1
		}
		sql := sqlAuditEntries
		next = max(below-int64(look), 0) // the numbers have no gaps
		if f.Actor != "" && f.Actor != forebay.ServerActor || f.Action != "" && !isJobEvent(f.Action) {
			sql, next = sqlAuditActs, 0
			if _, err := c.prep(sqlAuditAct).int(below).int(int64(look) - 1).one(func(r row) { next = r.int(0) }); err != nil {
				return err
			}
		}
		return c.prep(sql).int(below).int(next).text(f.Tenant).text(f.Actor).text(f.Action).int(int64(limit)).each(func(r row) error {
			entries = append(entries, readAudit(r))
			return nil
		})
	})
	if len(entries) == limit {
		next = entries[limit-1].Number
	}
	if next <= 1 {
		next = 0
	}
	return entries, next, err
}

// VerifyAudit follows the chain from a head for at most limit entries. The head's own entry is looked
// at again: it must still be the one that was seen then.
func (s *AuditStore) VerifyAudit(ctx context.Context, from forebay.AuditHead, limit int) (forebay.AuditVerification, error) {
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
		return unlessStopped(c.prep(sqlVerifyAudit).int(from.Number).int(int64(limit) + 1).each(func(r row) error {
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
