package quota

// blame is what is known of the tenant whose calls fail.
type blame struct {
	tenant int64 // whose call failed last; 0: none has
	// since is when the first of its failed calls began, with no 20 seconds between two failures.
	since    int64
	failedAt int64 // when it failed last
	// othersAt is when the latest call of another tenant began that went well. 0: none since
	// another failed.
	othersAt int64
}

// wentWell takes in whose call went well.
func (b *blame) wentWell(r Reservation) {
	if b.tenant != 0 && r.Tenant != 0 && r.Tenant != b.tenant {
		b.othersAt = max(b.othersAt, r.At)
	}
}

// failed takes in whose call failed.
func (b *blame) failed(now int64, r Reservation) {
	switch {
	case r.Tenant != b.tenant:
		b.tenant, b.since, b.othersAt = r.Tenant, r.At, 0
	case now-b.failedAt > outcomeSeconds*second:
		b.since = r.At
	}
	b.failedAt = now
}

// oneTenant reports whether only one tenant's calls fail. A call of another tenant that began
// after they had begun to fail went well, not long ago, and none of another's has failed since.
// Such failures keep nobody else away.
func (b *blame) oneTenant(now int64) bool {
	return b.tenant != 0 && b.othersAt > b.since && now-b.othersAt < outcomeSeconds*second
}
