package store

import (
	"context"
	"strconv"
)

// A tenant, or a deployment, may take only so many calls at once. Which are under way needs no book of
// its own: a call is, for as long as its lock holds the job's message, however its process fares. So a
// slot is only a row that finds the lock. It is written with the lock and removed with the settlement,
// and one that is left over counts for nothing. Nothing is asked or written where nobody is capped.

// slotUse is how many of a holder's slots are in use.
type slotUse struct {
	most  int64 // of a tenant: how many there are; 0: any number
	n     int64
	until int64 // when the first of the locks ends
	going int64 // candidates of the look under way that are to be called and are not locked yet
}

func (u *slotUse) free() int64 { return max(u.most-u.n-u.going, 0) }

func tenantHolder(no int64) string        { return "tenant/" + strconv.FormatInt(no, 10) }
func deploymentHolder(name string) string { return "deployment/" + name }

// The inner query finds each lock by the messages' key, whatever a planner thinks of the tables' sizes.
const sqlSlots = `
SELECT holder, 0, count(until), coalesce(min(until), 0), count(*)
FROM (SELECT s.holder, (SELECT m.visible FROM messages m WHERE m.seq = s.seq AND m.token = s.token AND m.visible + 0 > ?) AS until FROM slots s) x
GROUP BY holder
UNION ALL
SELECT 'tenant/' || CAST(no AS TEXT), concurrency, 0, 0, 0 FROM tenants WHERE concurrency IS NOT NULL`

// readSlots returns what is in use, by holder, and how many rows count for nothing.
func readSlots(c conn, now int64) (use map[string]*slotUse, left int64, err error) {
	use = map[string]*slotUse{}
	err = c.prep(sqlSlots).int(now).each(func(r row) error {
		u := use[r.text(0)]
		if u == nil {
			u = &slotUse{}
			use[r.text(0)] = u
		}
		u.most, u.n, u.until = u.most+r.int(1), u.n+r.int(2), max(u.until, r.int(3))
		left += r.int(4) - r.int(2)
		return nil
	})
	return use, left, err
}

// maxLeftSlots is how many rows that count for nothing are left lying.
const maxLeftSlots = 256

const sqlSweepSlots = "DELETE FROM slots WHERE coalesce((SELECT m.seq FROM messages m WHERE m.seq = slots.seq AND m.token = slots.token), 0) = 0"

// slotsOf returns what a holder has in use.
func (t *admissionTx) slotsOf(holder string) (*slotUse, error) {
	if t.slots == nil {
		use, left, err := readSlots(t.conn, t.now)
		if err == nil && left > maxLeftSlots {
			err = t.prep(sqlSweepSlots).exec()
		}
		if err != nil {
			return nil, err
		}
		t.slots = use
	}
	u := t.slots[holder]
	if u == nil {
		u = &slotUse{}
		t.slots[holder] = u
	}
	return u, nil
}

// anyCapped reports whether a tenant may be capped.
func (t *admissionTx) anyCapped() bool { return t.someCapped || len(t.w.caps) > 0 }

// slotsOfTenant returns nil for a tenant that is not capped.
func (t *admissionTx) slotsOfTenant(no int64) (*slotUse, error) {
	if !t.anyCapped() {
		return nil, nil
	}
	u, err := t.slotsOf(tenantHolder(no))
	if err != nil || u.most == 0 {
		return nil, err
	}
	return u, nil
}

// rest keeps looks away from the jobs of a tenant that has no slot left.
func (t *admissionTx) rest(tenant int64, u *slotUse) {
	if u.n >= u.most {
		t.w.full[tenant] = u.until
	}
}

// slotFreed has those looked at again that wait for a slot of the tenant, and in other processes for one of
// a deployment.
func (t *admissionTx) slotFreed(tenant int64) {
	t.slots = nil
	t.notify(wordSlots, 0, 0, 0)
	if _, full := t.w.full[tenant]; full {
		t.w.jobs.mayGo(map[int64]int64{tenant: 0})
		delete(t.w.full, tenant)
	}
}

// Those that are under way already count from now on.
const sqlSlotsUnderWay = `
INSERT INTO slots (seq, token, holder) SELECT seq, token, ?1 FROM messages
WHERE lane IN (SELECT no * 4 FROM queues WHERE kind = 'jobs' UNION ALL SELECT no * 4 + 1 FROM queues WHERE kind = 'jobs')
  AND rank >= ?2 * 1024 AND rank < (?2 + 1) * 1024 AND visible > ?3 AND token IS NOT NULL
ON CONFLICT (seq, token, holder) DO NOTHING`

// setConcurrency caps how many calls for a tenant's jobs may be under way at once; 0: it is not capped.
func (t *admissionTx) setConcurrency(tenant, most int64) error {
	if err := t.prep("UPDATE tenants SET concurrency = ? WHERE no = ?").intOrNull(most).int(tenant).exec(); err != nil {
		return err
	}
	if most > 0 {
		t.someCapped = true
		if err := t.prep(sqlSlotsUnderWay).text(tenantHolder(tenant)).int(tenant).int(t.now).exec(); err != nil {
			return err
		}
	} else if err := t.prep("DELETE FROM slots WHERE holder = ?").text(tenantHolder(tenant)).exec(); err != nil {
		return err
	}
	t.slotFreed(tenant)
	t.notify(wordSettings, 0, 0, 0)
	t.after = append(t.after, func() {
		if delete(t.w.caps, tenant); most > 0 {
			t.w.caps[tenant] = most
		}
		t.w.everybodyLooks(true)
	})
	return nil
}

// ConfigureConcurrency takes in what the configuration says of tenants' concurrency, by the rule of
// ConfigureBudgets: the latest change counts, whoever made it.
func (s *AdmissionStore) ConfigureConcurrency(ctx context.Context, wanted map[int64]int64) error {
	_, err := transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		changed := map[int64]int64{}
		for tenant, most := range wanted {
			changed[tenant] = most
		}
		err := t.prep("SELECT no, configured_concurrency FROM tenants WHERE configured_concurrency IS NOT NULL").each(func(r row) error {
			switch most, ok := wanted[r.int(0)]; {
			case !ok:
				changed[r.int(0)] = 0
			case most == r.int(1):
				delete(changed, r.int(0))
			}
			return nil
		})
		for tenant, most := range changed {
			if err == nil {
				err = t.setConcurrency(tenant, most)
			}
			if err == nil {
				err = t.prep("UPDATE tenants SET configured_concurrency = ? WHERE no = ?").intOrNull(most).int(tenant).exec()
			}
		}
		return struct{}{}, err
	})
	return err
}

// Slots is how many calls are under way where only so many may be.
type Slots struct{ use map[string]*slotUse }

// OfDeployment returns how many a deployment has; that is known only of those with a limit.
func (s Slots) OfDeployment(name string) int64 { return s.of(deploymentHolder(name)) }

// OfTenant returns how many a tenant has whose concurrency is limited.
func (s Slots) OfTenant(no int64) int64 { return s.of(tenantHolder(no)) }

func (s Slots) of(holder string) int64 {
	if u := s.use[holder]; u != nil {
		return u.n
	}
	return 0
}

// Full reports whether a tenant has as many under way as it may.
func (s Slots) Full(tenant int64) bool {
	u := s.use[tenantHolder(tenant)]
	return u != nil && u.most > 0 && u.n >= u.most
}

// most is how many a tenant may have; 0: any number.
func (s Slots) most(tenant int64) int64 {
	if u := s.use[tenantHolder(tenant)]; u != nil {
		return u.most
	}
	return 0
}
