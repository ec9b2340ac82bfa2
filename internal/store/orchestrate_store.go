package store

// OrchestrationStore keeps orchestrations.
type OrchestrationStore struct {
	*QueueStore
	lost listener[int]
}

func (s *OrchestrationStore) attach(*DB) {}

func (s *OrchestrationStore) follow(jobs *JobStore) {
	jobs.WhenEnded(func(t *tx, e Ended) error {
		if e.Uncalled {
			return nil
		}
		return orchestrateKey.of(t).answerCaller(e)
	})
}

func (s *OrchestrationStore) join(w *writer) {
	orchestrateKey.join(w, &orchestratePart{writer: w, lost: &s.lost})
}

// OnActivitiesLost makes f hear how many attempts of activities a transaction of this process found lost: of which nobody
// heard again. It must be quick.
func (s *OrchestrationStore) OnActivitiesLost(f func(n int)) { s.lost.set(f) }

var orchestrateKey = newPartKey(func(t *tx, p *orchestratePart) *orchestrateTx {
	return &orchestrateTx{tx: t, w: p, queue: queueKey.of(t)}
})
