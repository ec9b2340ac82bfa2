package server

import (
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/live"
	"github.com/forebayhq/forebay/internal/processes"
)

// newLive makes what tells operators of what happens now.
func newLive(s *Server) *live.Service {
	known := processes.New(processes.Options{
		DB: s.store.DB, Version: s.options.Version, Role: s.options.Role, Queues: s.dispatch.Queues,
		Number: s.store.Jobs.Process.Store, Logger: s.log,
	})
	changes := feed.NewHub(s.store.DB, known.ID())
	made := &live.Service{Queues: s.store.Queues, Jobs: s.jobs, Processes: known, Feed: changes, CallsQueue: CallsQueue}
	s.store.DB.OnTold(changes.Tell)
	s.store.DB.OnSignal(func(text string) {
		if !changes.Receive(text) {
			s.deltas.Receive(text)
		}
	})
	return made
}
