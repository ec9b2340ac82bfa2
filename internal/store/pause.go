package store

import "context"

// SetTenantPaused stops or restarts deliveries of a tenant's jobs from every queue.
func (s *JobStore) SetTenantPaused(ctx context.Context, tenant int64, paused bool, audit Audit) error {
	_, err := transactIn(ctx, jobsKey, s.writer, op{stage: stageChange}, func(t *jobsTx) (struct{}, error) {
		value := int64(0)
		if paused {
			value = 1
		}
		if err := t.prep("UPDATE tenants SET paused = ? WHERE no = ?").int(value).int(tenant).exec(); err != nil {
			return struct{}{}, err
		}
		t.after = append(t.after, func() {
			if delete(t.w.pausedTenants, tenant); paused {
				t.w.pausedTenants[tenant] = true
			}
			t.w.everybodyLooks(true)
		})
		t.notify(wordSettings, 0, 0, 0)
		return struct{}{}, auditIn(t.tx, audit)
	})
	return err
}
