package admission

import (
	"context"
	"strconv"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// A tenant, or a deployment, can have a concurrency limit. Nothing counts its calls: a call is
// under way for as long as its lock holds the job's message, whatever happens to its process. A
// row of the table slots finds that lock. It is written with the lock and removed with the
// settlement; one that is left over counts for nothing. Nothing is read or written where nobody
// has a limit.

// ConcurrencyUse is how much of a resource's concurrency limit is in use. A resource is a tenant
// or a deployment.
type ConcurrencyUse struct {
	most  int64 // of a tenant: its limit; 0: none
	N     int64
	Until int64 // when the first of the locks ends
	Going int64 // candidates of the current scan that are to be called and are not locked yet
}

func (u *ConcurrencyUse) Free() int64 { return max(u.most-u.N-u.Going, 0) }

// TenantResource names a tenant among the resources with a concurrency limit.
func TenantResource(no int64) string { return "tenant/" + strconv.FormatInt(no, 10) }

// DeploymentResource names a deployment among them.
func DeploymentResource(name string) string { return "deployment/" + name }

// The inner query finds each lock by the messages' key, whatever a planner thinks of the
// tables' sizes.
const sqlSlots = `
SELECT holder, 0, count(until), coalesce(min(until), 0), count(*)
FROM (SELECT s.holder, (SELECT m.visible_at FROM messages m WHERE m.seq = s.seq AND m.lock_token = s.lock_token AND m.visible_at + 0 > ?) AS until FROM slots s) x
GROUP BY holder
UNION ALL
SELECT 'tenant/' || CAST(no AS TEXT), concurrency, 0, 0, 0 FROM tenants WHERE concurrency IS NOT NULL`

// readConcurrency returns what is in use, by resource, and how many rows count for nothing.
func readConcurrency(c driver.Conn, now int64) (use map[string]*ConcurrencyUse, left int64, err error) {
	use = map[string]*ConcurrencyUse{}
	err = c.Prep(sqlSlots).Int(now).Each(func(r driver.Row) error {
		u := use[r.Text(0)]
		if u == nil {
			u = &ConcurrencyUse{}
			use[r.Text(0)] = u
		}
		u.most, u.N, u.Until = u.most+r.Int(1), u.N+r.Int(2), max(u.Until, r.Int(3))
		left += r.Int(4) - r.Int(2)
		return nil
	})
	return use, left, err
}

// maxLeftSlots is how many rows that count for nothing are left lying.
const maxLeftSlots = 256

const sqlSweepSlots = "DELETE FROM slots WHERE coalesce((SELECT m.seq FROM messages m WHERE m.seq = slots.seq AND m.lock_token = slots.lock_token), 0) = 0"

// ConcurrencyOf returns what a resource has in use.
func (t *Tx) ConcurrencyOf(holder string) (*ConcurrencyUse, error) {
	if t.Concurrency == nil {
		err := t.Alone(func() error {
			use, left, err := readConcurrency(t.Conn, t.Now)
			if err == nil && left > maxLeftSlots {
				err = t.Prep(sqlSweepSlots).Exec()
			}
			t.Concurrency = use
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	u := t.Concurrency[holder]
	if u == nil {
		u = &ConcurrencyUse{}
		t.Concurrency[holder] = u
	}
	return u, nil
}

// AnyCapped reports whether a tenant may be capped.
func (t *Tx) AnyCapped() bool { return t.someCapped || len(t.W.Caps) > 0 }

// TenantConcurrency returns nil for a tenant without a limit.
func (t *Tx) TenantConcurrency(no int64) (*ConcurrencyUse, error) {
	if !t.AnyCapped() {
		return nil, nil
	}
	u, err := t.ConcurrencyOf(TenantResource(no))
	if err != nil || u.most == 0 {
		return nil, err
	}
	return u, nil
}

// Rest keeps scans away from the jobs of a tenant that is at its limit.
func (t *Tx) Rest(tenant int64, u *ConcurrencyUse) {
	if u.N >= u.most {
		t.W.Full[tenant] = u.Until
	}
}

// ConcurrencyFreed has the jobs scanned again that wait for the tenant's limit, and in other
// processes those that wait for a deployment's.
func (t *Tx) ConcurrencyFreed(tenant int64) {
	t.Concurrency = nil
	t.Notify(wordConcurrency, 0, 0, 0)
	if _, full := t.W.Full[tenant]; full {
		t.W.Jobs.MayGo(map[int64]int64{tenant: 0})
		delete(t.W.Full, tenant)
	}
}

// Those that are under way already count from now on.
const sqlSlotsUnderWay = `
INSERT INTO slots (seq, lock_token, holder) SELECT seq, lock_token, ?1 FROM messages
WHERE subqueue IN (SELECT no * 4 FROM queues WHERE kind = 'jobs' UNION ALL SELECT no * 4 + 1 FROM queues WHERE kind = 'jobs')
  AND flow >= ?2 * 1024 AND flow < (?2 + 1) * 1024 AND visible_at > ?3 AND lock_token IS NOT NULL
ON CONFLICT (seq, lock_token, holder) DO NOTHING`

// SetConcurrency caps how many calls for a tenant's jobs may be under way at once; 0: it is not
// capped.
func (t *Tx) SetConcurrency(tenant, most int64) error {
	if err := t.Prep("UPDATE tenants SET concurrency = ? WHERE no = ?").IntOrNull(most).Int(tenant).Exec(); err != nil {
		return err
	}
	if most > 0 {
		t.someCapped = true
		if err := t.Prep(sqlSlotsUnderWay).Text(TenantResource(tenant)).Int(tenant).Int(t.Now).Exec(); err != nil {
			return err
		}
	} else if err := t.Prep("DELETE FROM slots WHERE holder = ?").Text(TenantResource(tenant)).Exec(); err != nil {
		return err
	}
	t.ConcurrencyFreed(tenant)
	t.Notify(db.WordSettings, 0, 0, 0)
	t.After = append(t.After, func() {
		if delete(t.W.Caps, tenant); most > 0 {
			t.W.Caps[tenant] = most
		}
		t.W.RescanAll(true)
	})
	return nil
}

// ConfigureConcurrency takes in what the configuration says of tenants' concurrency, by the
// rule of ConfigureBudgets: the latest change counts, whoever made it.
func (s *Store) ConfigureConcurrency(ctx context.Context, wanted map[int64]int64) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		changed := map[int64]int64{}
		for tenant, most := range wanted {
			changed[tenant] = most
		}
		err := t.Prep("SELECT no, configured_concurrency FROM tenants WHERE configured_concurrency IS NOT NULL").Each(func(r driver.Row) error {
			switch most, ok := wanted[r.Int(0)]; {
			case !ok:
				changed[r.Int(0)] = 0
			case most == r.Int(1):
				delete(changed, r.Int(0))
			}
			return nil
		})
		for tenant, most := range changed {
			if err == nil {
				err = t.SetConcurrency(tenant, most)
			}
			if err == nil {
				err = t.Prep("UPDATE tenants SET configured_concurrency = ? WHERE no = ?").IntOrNull(most).Int(tenant).Exec()
			}
		}
		return struct{}{}, err
	})
	return err
}

// Concurrency is how many calls the resources with a concurrency limit have under way.
type Concurrency struct{ use map[string]*ConcurrencyUse }

// OfDeployment returns how many a deployment has; that is known only of those with a limit.
func (s Concurrency) OfDeployment(name string) int64 { return s.of(DeploymentResource(name)) }

// OfTenant returns how many a tenant has whose concurrency is limited.
func (s Concurrency) OfTenant(no int64) int64 { return s.of(TenantResource(no)) }

func (s Concurrency) of(holder string) int64 {
	if u := s.use[holder]; u != nil {
		return u.N
	}
	return 0
}

// Full reports whether a tenant has as many under way as it may.
func (s Concurrency) Full(tenant int64) bool {
	u := s.use[TenantResource(tenant)]
	return u != nil && u.most > 0 && u.N >= u.most
}

// Most is how many a tenant may have; 0: any number.
func (s Concurrency) Most(tenant int64) int64 {
	if u := s.use[TenantResource(tenant)]; u != nil {
		return u.most
	}
	return 0
}
