package store

// QueueStore knows tenants and queues by name.
type QueueStore struct {
	*DB
	names names
}

func (s *QueueStore) attach(d *DB) { s.DB = d }
func (s *QueueStore) join(w *writer) {
	queueKey.join(w, &queuePart{writer: w, paused: map[int64]bool{}})
}

var queueKey = newPartKey(func(t *tx, p *queuePart) *queueTx { return &queueTx{tx: t, w: p} })
