package queue

import (
	"context"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
)

// SetTenantPaused stops or restarts deliveries of a tenant's jobs from every queue.
func (s *Store) SetTenantPaused(ctx context.Context, tenant int64, paused bool, entry audit.Act) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		value := int64(0)
		if paused {
			value = 1
		}
		if err := t.Prep("UPDATE tenants SET paused = ? WHERE no = ?").Int(value).Int(tenant).Exec(); err != nil {
			return struct{}{}, err
		}
		t.After = append(t.After, func() {
			if delete(t.w.PausedTenants, tenant); paused {
				t.w.PausedTenants[tenant] = true
			}
			t.w.RescanAll(true)
		})
		t.Notify(db.WordSettings, 0, 0, 0)
		return struct{}{}, audit.Append(t.Tx, entry)
	})
	return err
}
