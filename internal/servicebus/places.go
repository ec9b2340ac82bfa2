package servicebus

import "sync"

const (
	// maxLinks bounds the links of all tenants to entities.
	maxLinks = 20_000
	// maxTenantLinks is the limit of one tenant.
	maxTenantLinks = 5_000
)

// places counts links. Each may hold a goroutine and a waiting receiver.
type places struct {
	mu      sync.Mutex
	all     int
	tenants map[string]int
}

// enter takes a place until leave is called. leave may be called once.
func (p *places) enter(tenant string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= maxLinks || p.tenants[tenant] >= maxTenantLinks {
		return nil, errTooManyLinks
	}
	if p.tenants == nil {
		p.tenants = map[string]int{}
	}
	p.all++
	p.tenants[tenant]++
	return func() { p.leave(tenant) }, nil
}

func (p *places) leave(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.tenants[tenant]--; p.tenants[tenant] == 0 {
		delete(p.tenants, tenant)
	}
}
