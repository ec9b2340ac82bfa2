package server

import (
	"time"

	"github.com/forebayhq/forebay/internal/files"
)

// OpenAI configures files and batches of OpenAI's API. Zero numbers mean the defaults.
type OpenAI struct {
	// MaxFileBytes limits one file; default 512 MiB.
	MaxFileBytes int64 `koanf:"max_file_bytes"`
	// MaxBatchBytes limits a file with the purpose batch; default 200 MiB.
	MaxBatchBytes int64 `koanf:"max_batch_bytes"`
}

// mostFileBytes bounds what can be configured.
const mostFileBytes = 8 << 30

func (o OpenAI) withDefaults() OpenAI {
	o.MaxFileBytes = or(o.MaxFileBytes, files.DefaultMaxBytes)
	o.MaxBatchBytes = or(o.MaxBatchBytes, min(files.DefaultMaxBatchBytes, o.MaxFileBytes))
	return o
}

func (o OpenAI) validate(bad func(field, format string, args ...any)) {
	switch {
	case o.MaxFileBytes < 1 || o.MaxFileBytes > mostFileBytes:
		bad("openai.max_file_bytes", "goes from 1 to %d", int64(mostFileBytes))
	case o.MaxBatchBytes < 1 || o.MaxBatchBytes > o.MaxFileBytes:
		bad("openai.max_batch_bytes", "goes from 1 to max_file_bytes")
	}
}

// openFiles creates the service of files.
func (s *Server) openFiles() {
	o := s.options
	s.files = files.New(files.Options{
		Store: s.store.Files, Blobs: s.blobs, Limits: s.limits, Logger: s.log,
		MaxBytes: o.OpenAI.MaxFileBytes, MaxBatchBytes: o.OpenAI.MaxBatchBytes, Remember: time.Duration(o.Limits.IdempotencyHours) * time.Hour,
	})
}
