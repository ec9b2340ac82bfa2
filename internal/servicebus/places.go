package servicebus

import "sync"

const (
	// maxLinks bounds the links of all tenants to entities.
	maxLinks = 20_000
	// maxTenantLinks is the limit of one tenant.
	maxTenantLinks = 5_000
	// maxBrowsers bounds those of them that get copies: each looks for more again and again.
	maxBrowsers = 1_000
	// maxTenantBrowsers is the limit of one tenant.
	maxTenantBrowsers = 100
)

// places counts links. Each may hold a goroutine and a waiting receiver.
type places struct {
	most, mostOfTenant int   // of all tenants, and of one
	full               error // for those who find no place

	mu      sync.Mutex
	all     int
	tenants map[string]int
}

// ofLinks returns places for all links, and ofBrowsers those for links that get copies.
func ofLinks() *places {
	return &places{most: maxLinks, mostOfTenant: maxTenantLinks, full: errTooManyLinks}
}

func ofBrowsers() *places {
	return &places{most: maxBrowsers, mostOfTenant: maxTenantBrowsers, full: errTooManyCopies}
}

// enter takes a place until leave is called. leave may be called once.
func (p *places) enter(tenant string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.most || p.tenants[tenant] >= p.mostOfTenant {
		return nil, p.full
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
