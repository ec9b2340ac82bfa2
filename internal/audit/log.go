package audit

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/listing"
)

// Act is what an operator did.
type Act struct {
	Tenant, Actor, Action, Target, Detail string
}

// RecordAct appends an act to the log that changes nothing in the database.
func (s *Store) Record(ctx context.Context, a Act) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) { return struct{}{}, t.append(a) })
	return err
}

// Append appends to the log, in the transaction of the act itself. Without an action there is
// nothing to tell.
func Append(t *db.Tx, a Act) error { return key.Of(t).append(a) }

func (t *tx) append(a Act) (err error) {
	if a.Action == "" {
		return nil
	}
	if t.end == nil {
		err := t.Alone(func() (err error) {
			t.end, err = readAuditEnd(t.Conn)
			return err
		})
		if err != nil {
			return err
		}
	}
	a = a.storable()
	if err := appendAudit(t.Conn, t.end, t.Now, a); err != nil || a.Actor == forebay.ServerActor && isJobEvent(a.Action) {
		return err
	}
	return addAuditAct(t.Conn, t.end.number, a)
}

// sqlAddAuditAct finds the number there only where somebody has cut the end of the log off:
// acts go on all the same.
var sqlAddAuditAct = driver.BatchForm("INSERT INTO audit_acts (no, tenant, actor, action) VALUES (?, ?, ?, ?) ON CONFLICT (no) DO NOTHING",
	"INSERT INTO audit_acts (no, tenant, actor, action) SELECT p1, p2, p3, p4 FROM %s ON CONFLICT (no) DO NOTHING")

func addAuditAct(c driver.Conn, number int64, a Act) error {
	return c.Prep(sqlAddAuditAct).Int(number).Text(a.Tenant).Text(a.Actor).Text(a.Action).Exec()
}

// isJobEvent reports whether entries of this action that nobody made are events of jobs. All
// others stand in audit_acts too.
func isJobEvent(action string) bool {
	return slices.Contains(forebay.JobEventTypes, forebay.EventType(action))
}

// readAuditEnd is for each transaction: another process may have written since the one before.
func readAuditEnd(c driver.Conn) (*auditEnd, error) {
	end := newAuditEnd()
	_, err := c.Prep(sqlAuditEnd).One(end.read)
	if err != nil {
		return nil, fmt.Errorf("read end of audit log: %w", err)
	}
	return end, nil
}

// storable is what a database can hold and gives back, and so what is hashed: text without NUL.
func (a Act) storable() Act {
	for _, field := range []*string{&a.Tenant, &a.Actor, &a.Action, &a.Target, &a.Detail} {
		*field = strings.ToValidUTF8(strings.ReplaceAll(*field, "\x00", "\uFFFD"), "\uFFFD")
	}
	return a
}

// appendAudit chains a row to the last one.
func appendAudit(c driver.Conn, end *auditEnd, at int64, a Act) error {
	e := forebay.AuditEntry{Number: end.number + 1, PreviousHash: end.hash, At: driver.FromMillis(at),
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
	return c.Prep("INSERT INTO audit (no, at, tenant, actor, action, target, detail, prev, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)").
		Int(e.Number).Int(at).Text(a.Tenant).Text(a.Actor).Text(a.Action).Text(a.Target).Text(a.Detail).Blob(previous).Blob(hash).Exec()
}

const (
	auditColumns = "SELECT e.no, e.at, e.tenant, e.actor, e.action, e.target, e.detail, e.prev, e.hash FROM "
	auditFilter  = " AND (?3 = '' OR e.tenant = ?3) AND (?4 = '' OR e.actor = ?4) AND (?5 = '' OR e.action = ?5) "
	auditTimes   = "AND e.at >= ?7 AND e.at < ?8 "

	sqlVerifyAudit  = auditColumns + "audit e WHERE e.no >= ? ORDER BY e.no LIMIT ? + 0"
	sqlAuditEntries = auditColumns + "audit e WHERE e.no < ?1 AND e.no >= ?2" + auditFilter + auditTimes + "ORDER BY e.no DESC LIMIT ?6 + 0"
	sqlAuditAct     = "SELECT no FROM audit_acts WHERE no < ? AND no >= ? ORDER BY no DESC LIMIT 1 OFFSET ? + 0"
)

// sqlAuditActs looks an entry up only once the act fits.
var sqlAuditActs = auditColumns + "audit_acts a CROSS JOIN audit e ON e.no = a.no WHERE a.no < ?1 AND a.no >= ?2" +
	strings.ReplaceAll(auditFilter, "e.", "a.") + auditFilter + auditTimes + "ORDER BY a.no DESC LIMIT ?6 + 0"

func readAudit(r driver.Row) forebay.AuditEntry {
	return forebay.AuditEntry{Number: r.Int(0), At: driver.FromMillis(r.Int(1)), Tenant: r.Text(2), Actor: r.Text(3), Action: r.Text(4),
		Target: r.Text(5), Detail: r.Text(6), PreviousHash: hex.EncodeToString(r.Blob(7)), Hash: hex.EncodeToString(r.Blob(8))}
}

// inOrder is the log: entries are numbered in the order of their times.
var inOrder = listing.NewChronologyOfAll("audit", "no", "at")

// selected returns the numbers that hold all entries below one that were made in a time, and some
// more on both sides: clocks are set. A time of 0 is no bound.
func selected(c driver.Conn, below, after, before int64) (from, until int64, err error) {
	if before > 0 {
		first, err := inOrder.FirstSince(c, 0, before+listing.CreatedSlack)
		if err != nil {
			return 0, 0, err
		}
		below = min(below, first)
	}
	if after > 0 {
		from, err = inOrder.FirstSince(c, 0, after-listing.CreatedSlack)
	}
	return from, below, err
}

const (
	// maxAuditLook bounds the entries that one page is selected from.
	maxAuditLook = 100_000
	// noBound is later than all times.
	noBound = 1 << 62
)

// AuditEntries returns entries with a number below the given one (0: from the last on), newest
// first. There may be more below next even if they are fewer than limit. A page reads only so
// many entries that the filter leaves out. A next of 0 is the end.
func (s *Store) Entries(ctx context.Context, f forebay.AuditFilter, below int64, limit int) (entries []forebay.AuditEntry, next int64, err error) {
	return s.auditEntries(ctx, f, below, limit, maxAuditLook)
}

func (s *Store) auditEntries(ctx context.Context, f forebay.AuditFilter, below int64, limit, look int) (entries []forebay.AuditEntry, next int64, err error) {
	after, before, err := listing.Created(f.CreatedAfter, f.CreatedBefore)
	if err != nil {
		return nil, 0, err
	}
	from := int64(0)
	err = s.Read(ctx, func(c driver.Conn) error {
		entries = nil
		until := below
		if until <= 0 {
			end, err := readAuditEnd(c)
			if err != nil {
				return err
			}
			until = end.number + 1
		}
		var err error
		if from, until, err = selected(c, until, after, before); err != nil {
			return err
		}
		sql := sqlAuditEntries
		next = max(until-int64(look), from) // the numbers have no gaps
		if f.Actor != "" && f.Actor != forebay.ServerActor || f.Action != "" && !isJobEvent(f.Action) {
			sql, next = sqlAuditActs, from
			if _, err := c.Prep(sqlAuditAct).Int(until).Int(from).Int(int64(look) - 1).One(func(r driver.Row) { next = r.Int(0) }); err != nil {
				return err
			}
		}
		return c.Prep(sql).Int(until).Int(next).Text(f.Tenant).Text(f.Actor).Text(f.Action).Int(int64(limit)).Int(after).Int(cmp.Or(before, noBound)).Each(func(r driver.Row) error {
			entries = append(entries, readAudit(r))
			return nil
		})
	})
	if len(entries) == limit {
		next = entries[limit-1].Number
	}
	if next <= max(from, 1) {
		next = 0
	}
	return entries, next, err
}

// VerifyAudit follows the chain from a head for at most limit entries. The head's own entry is
// looked at again: it must still be the one that was seen then.
func (s *Store) Verify(ctx context.Context, from forebay.AuditHead, limit int) (forebay.AuditVerification, error) {
	v := forebay.AuditVerification{Intact: true}
	at := from
	if from.Number == 0 {
		at.Hash = forebay.NoAuditHash
	}
	broken := func(number int64, reason string) error {
		v.Intact, v.Broken = false, &forebay.AuditBreak{Number: number, Reason: reason}
		return driver.ErrStop
	}
	rows := 0
	seen := from.Number == 0 // the head's own entry
	err := s.Read(ctx, func(c driver.Conn) error {
		return driver.UnlessStopped(c.Prep(sqlVerifyAudit).Int(from.Number).Int(int64(limit) + 1).Each(func(r driver.Row) error {
			e := readAudit(r)
			if rows++; rows > limit {
				return driver.ErrStop
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
