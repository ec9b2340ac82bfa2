package feed

import "slices"

// waiting is items in their order, of which there are at most so many. Tenants share the room.
// Where there is none, the tenant that has most gives way to one that has less. So one whose jobs
// are many does not hide what happens to the jobs of others.
type waiting struct {
	items []any
	of    map[int64]int // how many, by tenant
}

// tenantOf returns the tenant of an item.
func tenantOf(item any) int64 {
	switch item := item.(type) {
	case *Job:
		return item.Tenant
	case *Object:
		return item.Tenant
	}
	return 0
}

// add adds an item. dropped is the one that there is no room for; nil: there is room for all.
func (w *waiting) add(item any, most int) (dropped any) {
	tenant := tenantOf(item)
	if len(w.items) >= most {
		greatest := w.greatest()
		if w.of[greatest] <= w.of[tenant]+1 {
			return item
		}
		last := len(w.items) - 1
		for tenantOf(w.items[last]) != greatest {
			last--
		}
		dropped = w.items[last]
		w.items = slices.Delete(w.items, last, last+1)
		w.count(greatest, -1)
	}
	w.items = append(w.items, item)
	w.count(tenant, 1)
	return dropped
}

// greatest returns the tenant with most items.
func (w *waiting) greatest() (tenant int64) {
	most := -1
	for of, n := range w.of {
		if n > most {
			tenant, most = of, n
		}
	}
	return tenant
}

func (w *waiting) count(tenant int64, n int) {
	if w.of == nil {
		w.of = map[int64]int{}
	}
	if w.of[tenant] += n; w.of[tenant] == 0 {
		delete(w.of, tenant)
	}
}

// take takes the first items, so many at most.
func (w *waiting) take(most int) []any {
	n := min(len(w.items), most)
	taken := slices.Clone(w.items[:n])
	w.items = slices.Delete(w.items, 0, n)
	for _, item := range taken {
		w.count(tenantOf(item), -1)
	}
	return taken
}
