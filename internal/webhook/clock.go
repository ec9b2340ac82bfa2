package webhook

import (
	"github.com/forebayhq/forebay/internal/db"
)

// 660000 is the longest pause of a webhook's breaker.
const sqlPausesAhead = `
UPDATE webhooks SET paused_until = CASE WHEN paused_until > ?1 + 660000 THEN ?1 ELSE paused_until END,
  failing_since = CASE WHEN failing_since > ?1 THEN ?1 ELSE failing_since END
WHERE paused_until > ?1 + 660000 OR failing_since > ?1`

func (p *participant) ClockMend() db.ClockMend { return db.ClockMend{Few: []string{sqlPausesAhead}} }
