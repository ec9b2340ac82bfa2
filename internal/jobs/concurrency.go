package jobs

import "github.com/forebayhq/forebay/internal/admission"

// concurrencyTx counts deliveries in the concurrency limits of tenants and deployments.
type concurrencyTx struct{ *Tx }

func (t *Tx) concurrency() concurrencyTx { return concurrencyTx{t} }

// take counts a locked candidate in its concurrency limits.
func (t concurrencyTx) take(m *candidate) error {
	put := func(holder string, u *admission.ConcurrencyUse) error {
		u.Going = max(u.Going-1, 0)
		if u.N++; u.Until == 0 || m.LockedUntil.UnixMilli() < u.Until {
			u.Until = m.LockedUntil.UnixMilli()
		}
		m.ConcurrencyLimited = true
		return t.Prep("INSERT INTO slots (seq, lock_token, holder) VALUES (?, ?, ?)").Int(m.Seq).Int(m.Token).Text(holder).Exec()
	}
	if m.Admission != nil && m.Admission.Concurrency > 0 {
		holder := admission.DeploymentResource(m.Admission.Deployment)
		u, err := t.admission.ConcurrencyOf(holder)
		if err == nil {
			err = put(holder, u)
		}
		if err != nil {
			return err
		}
	}
	u, err := t.admission.TenantConcurrency(m.Tenant)
	if err != nil || u == nil {
		return err
	}
	err = put(admission.TenantResource(m.Tenant), u)
	t.admission.Rest(m.Tenant, u)
	return err
}

// release is for a delivery that was settled.
func (t concurrencyTx) release(d *LockedJob) error {
	if !d.ConcurrencyLimited && t.admission.W.Caps[d.Tenant] == 0 {
		return nil
	}
	t.admission.ConcurrencyFreed(d.Tenant)
	return t.Prep("DELETE FROM slots WHERE seq = ? AND lock_token = ?").Int(d.Seq).Int(d.Token).Exec()
}
