package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"golang.org/x/sync/singleflight"
)

// names caches the numbers of tenants and queues, which never change. A name that is not in
// memory is read once, however many callers ask for it. The read is outside of the write
// transactions, which exclude each other. Only a new name is written.
type names struct {
	mu          sync.RWMutex
	tenants     map[string]int64
	queues      map[string]int64
	tenantNames map[int64]string

	flights singleflight.Group
	batch   *tenantBatch // tenants that the next transaction creates; nil: none
}

// tenantBatch has tenants that one transaction creates.
type tenantBatch struct {
	names []string
	nos   map[string]int64 // once done
	err   error
	done  chan struct{}
}

// maxNewTenants is how many tenants one transaction creates.
const maxNewTenants = 1000

const (
	sqlTenantNo     = "SELECT no FROM tenants WHERE name = ?"
	sqlQueueNoNamed = "SELECT no FROM queues WHERE name = ?"
	sqlLatest       = "SELECT name, no FROM tenants ORDER BY no DESC LIMIT ? + 0"
)

// EnsureQueue returns the number of the queue with that name, creating it if it does not exist.
func (s *Store) EnsureQueue(ctx context.Context, name string) (int64, error) {
	return s.ensureName(ctx, "queue", name, &s.names.queues, sqlQueueNoNamed, s.createQueue)
}

// EnsureTenant returns the number of the tenant with that name, creating it if it does not exist.
func (s *Store) EnsureTenant(ctx context.Context, name string) (int64, error) {
	s.names.mu.RLock()
	no, ok := s.names.tenants[name]
	s.names.mu.RUnlock()
	if ok { // the usual case, which allocates nothing
		return no, nil
	}
	return s.ensureName(ctx, "tenant", name, &s.names.tenants, sqlTenantNo, s.createTenant)
}

// KnowsTenant reports whether there is a tenant of that name. It creates none.
func (s *Store) KnowsTenant(ctx context.Context, name string) (bool, error) {
	s.names.mu.RLock()
	_, known := s.names.tenants[name]
	s.names.mu.RUnlock()
	if known {
		return true, nil
	}
	_, known, err := s.numberOf(ctx, sqlTenantNo, name)
	return known, err
}

// ensureName returns the number of a name. Callers who ask for the same name at once share the
// answer. Each waits as long as its own context allows.
func (s *Store) ensureName(ctx context.Context, kind, name string, cache *map[string]int64, find string, make func(context.Context, string) (int64, error)) (int64, error) {
	s.names.mu.RLock()
	no, ok := (*cache)[name]
	s.names.mu.RUnlock()
	if ok {
		return no, nil
	}
	flight := s.names.flights.DoChan(kind+" "+name, func() (any, error) {
		ctx := context.WithoutCancel(ctx) // the others wait too
		no, found, err := s.numberOf(ctx, find, name)
		if err == nil && !found {
			no, err = make(ctx, name)
		}
		if err != nil {
			return nil, err
		}
		s.names.mu.Lock()
		defer s.names.mu.Unlock()
		if *cache == nil {
			*cache = map[string]int64{}
		}
		(*cache)[name] = no
		return no, nil
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return 0, r.Err
		}
		return r.Val.(int64), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *Store) numberOf(ctx context.Context, find, name string) (no int64, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = c.Prep(find).Text(name).One(func(r driver.Row) { no = r.Int(0) })
		return err
	})
	return no, found, err
}

func (s *Store) createQueue(ctx context.Context, name string) (int64, error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageSettle}, func(t *Tx) (no int64, err error) {
		found, err := t.Prep(sqlQueueNoNamed).Text(name).One(func(r driver.Row) { no = r.Int(0) })
		if err != nil || found {
			return no, err
		}
		_, err = t.Prep("INSERT INTO queues (no, name, created_at) SELECT max(no), ?, ? FROM " + UnusedQueueNo + " RETURNING no").
			Text(name).Int(t.Now).One(func(r driver.Row) { no = r.Int(0) })
		return no, err
	})
}

// createTenant creates a tenant, in one transaction with all others that are asked for before the
// writer begins it.
func (s *Store) createTenant(ctx context.Context, name string) (int64, error) {
	n := &s.names
	n.mu.Lock()
	batch := n.batch
	first := batch == nil || len(batch.names) == maxNewTenants
	if first {
		batch = &tenantBatch{done: make(chan struct{})}
		n.batch = batch
	}
	batch.names = append(batch.names, name)
	n.mu.Unlock()
	if first {
		func() {
			defer close(batch.done)
			batch.err = errors.New("making tenants was cut off") // by a panic
			// Other callers wait for this too, even if this one is cancelled.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTenantsTimeout)
			defer cancel()
			batch.nos, batch.err = s.createTenants(ctx, batch)
		}()
	}
	<-batch.done
	if batch.err != nil {
		return 0, batch.err
	}
	if no, ok := batch.nos[name]; ok {
		return no, nil
	}
	no, found, err := s.numberOf(ctx, sqlTenantNo, name) // another process has created it
	if err == nil && !found {
		err = errors.New("a tenant that was made is not there")
	}
	return no, err
}

// createTenantsTimeout bounds the wait for new tenants.
const createTenantsTimeout = 30 * time.Second

// createTenants creates tenants in one transaction and returns the numbers of the new ones. The
// transaction waits for no answer but that of its commit.
func (s *Store) createTenants(ctx context.Context, batch *tenantBatch) (map[string]int64, error) {
	defer s.closeBatch(batch) // in case the writer never begins it
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageSettle}, func(t *Tx) (struct{}, error) {
		for _, name := range s.closeBatch(batch) {
			if err := t.Prep("INSERT INTO tenants (name, created_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING").Text(name).Int(t.Now).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return nil, err
	}
	nos := make(map[string]int64, len(batch.names))
	err = s.Read(ctx, func(c driver.Conn) error {
		return c.Prep(sqlLatest).Int(int64(2 * len(batch.names))).Each(func(r driver.Row) error {
			nos[r.Text(0)] = r.Int(1)
			return nil
		})
	})
	return nos, err
}

// closeBatch keeps further tenants out of a batch and returns those in it.
func (s *Store) closeBatch(batch *tenantBatch) []string {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	if s.names.batch == batch {
		s.names.batch = nil
	}
	return batch.names
}

// UnusedQueueNo selects numbers whose maximum is the number of the next queue.
const UnusedQueueNo = "(SELECT coalesce(max(no), 0) + 1 AS no FROM queues UNION ALL SELECT value FROM counters WHERE name = 'queue') AS used"
