package server

import (
	"time"

	"github.com/forebayhq/forebay/internal/batches"
	"github.com/forebayhq/forebay/internal/files"
)

// OpenAI configures files and batches of OpenAI's API. Zero numbers mean the defaults.
type OpenAI struct {
	// KeepBodies keeps the request and the answer of each synchronous call as the result of its job.
	// Together they may have Limits.MaxOutputBytes.
	KeepBodies bool `koanf:"keep_bodies"`
	// MaxFileBytes limits one file; default 512 MiB.
	MaxFileBytes int64 `koanf:"max_file_bytes"`
	// MaxBatchBytes limits a file with the purpose batch; default 200 MiB.
	MaxBatchBytes int64 `koanf:"max_batch_bytes"`
	// MaxBatchLines limits the lines of one batch; default 50,000.
	MaxBatchLines int64 `koanf:"max_batch_lines"`
}

// Bounds of what can be configured. A batch is validated in memory of 100 bytes for each line.
const (
	mostFileBytes  = 8 << 30
	mostBatchLines = 1_000_000
)

func (o OpenAI) withDefaults() OpenAI {
	o.MaxFileBytes = or(o.MaxFileBytes, files.DefaultMaxBytes)
	o.MaxBatchBytes = or(o.MaxBatchBytes, min(files.DefaultMaxBatchBytes, o.MaxFileBytes))
	o.MaxBatchLines = or(o.MaxBatchLines, batches.DefaultMaxLines)
	return o
}

func (o OpenAI) validate(bad func(field, format string, args ...any)) {
	switch {
	case o.MaxFileBytes < 1 || o.MaxFileBytes > mostFileBytes:
		bad("openai.max_file_bytes", "goes from 1 to %d", int64(mostFileBytes))
	case o.MaxBatchLines < 1 || o.MaxBatchLines > mostBatchLines:
		bad("openai.max_batch_lines", "goes from 1 to %d", mostBatchLines)
	case o.MaxBatchBytes < 1 || o.MaxBatchBytes > o.MaxFileBytes:
		bad("openai.max_batch_bytes", "goes from 1 to max_file_bytes")
	}
}

// newFiles creates the service of files.
func newFiles(s *Server) *files.Service {
	o := s.options
	return files.New(files.Options{
		Store: s.store.Files, Blobs: s.blobs, Limits: s.limits, Logger: s.log,
		MaxBytes: o.OpenAI.MaxFileBytes, MaxBatchBytes: o.OpenAI.MaxBatchBytes, Remember: time.Duration(o.Limits.IdempotencyHours) * time.Hour,
	})
}
