package embedded

import (
	"context"
	"sync"
)

// Gate lets as many through as it was opened for; the others wait.
type Gate struct {
	mu     sync.Mutex
	places int
	opened chan struct{} // closed when there are more places; nil if nobody waits
}

// Open lets so many more through.
func (g *Gate) Open(places int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.places += places
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// Pass waits for a place and takes it.
func (g *Gate) Pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.places > 0 {
			g.places--
			g.mu.Unlock()
			return nil
		}
		if g.opened == nil {
			g.opened = make(chan struct{})
		}
		opened := g.opened
		g.mu.Unlock()
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
