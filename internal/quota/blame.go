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

// doubter is the tenant whose call was denied last in a way that may be its own fault. It is
// forgotten in time, because processes of before cannot read a state that has one.
type doubter struct {
	tenant   int64 // 0: none for doubterKept
	deniedAt int64 // when its call was denied last
	othersAt int64 // when a call of another tenant went well last, since one of its was denied; 0: none has
}

// doubterKept is how long a tenant is remembered after the last such denial.
const doubterKept = 24 * 60 * minute

// denied takes in whose call was denied in such a way.
func (d *doubter) denied(now int64, r Reservation) {
	if r.Tenant != d.tenant {
		d.tenant, d.othersAt = r.Tenant, 0
	}
	d.deniedAt = now
}

// wentWell takes in whose call went well.
func (d *doubter) wentWell(now int64, r Reservation) {
	switch {
	case d.tenant == 0 || now-d.deniedAt > doubterKept:
		*d = doubter{}
	case r.Tenant != 0 && r.Tenant != d.tenant:
		d.othersAt = now
	}
}

// alone reports whether only this tenant's calls are denied so: another's went well not long ago,
// and none of another's has been denied since.
func (d *doubter) alone(now int64) bool {
	return d.tenant != 0 && d.othersAt != 0 && now-d.othersAt < breakerMemory
}
