package store

// WebhookStore keeps webhooks, and what became of their deliveries.
type WebhookStore struct {
	*QueueStore
	changes listener[struct{}] // in other processes
}

func (s *WebhookStore) attach(*DB) {}

func (s *WebhookStore) join(w *writer) {
	bus := busKey.in(w)
	p := &webhookPart{bus: bus}
	bus.webhooks = p
	webhookKey.join(w, p)
}

func (s *WebhookStore) received(n *notification) {
	if n.lost || n.has(wordWebhooks) {
		s.changes.tell(struct{}{})
	}
}

// OnWebhooksChanged makes f hear of it when another process has changed the webhooks, or may have.
func (s *WebhookStore) OnWebhooksChanged(f func()) { s.changes.set(func(struct{}) { f() }) }

var webhookKey = newPartKey(func(t *tx, _ *webhookPart) *webhookTx { return &webhookTx{busTx: busKey.of(t)} })
