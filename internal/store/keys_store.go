package store

// KeyStore keeps API keys.
type KeyStore struct {
	*QueueStore
	changes listener[struct{}] // in other processes
}

func (s *KeyStore) attach(*DB)   {}
func (s *KeyStore) join(*writer) {}

func (s *KeyStore) received(n *notification) {
	if n.has(wordKeys) { // one that was missed is found by looking
		s.changes.tell(struct{}{})
	}
}

// OnKeysChanged makes f hear of it when another process has made or revoked an API key. It must be quick.
func (s *KeyStore) OnKeysChanged(f func()) { s.changes.set(func(struct{}) { f() }) }
