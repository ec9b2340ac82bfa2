package messaging

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// A queue that is deleted when idle is kept by whatever a receiver does with its messages.
func TestReceiversKeepAQueue(t *testing.T) {
	for what, do := range map[string]func(ctx context.Context, b *Service, token string) error{
		"renew": func(ctx context.Context, b *Service, token string) error {
			_, err := b.Messages.Renew(ctx, "acme", "q", token)
			return err
		},
		"peek": func(ctx context.Context, b *Service, _ string) error {
			_, _, err := b.Messages.Peek(ctx, "acme", "q", PeekFilter{Limit: 1})
			return err
		},
		"complete": func(ctx context.Context, b *Service, token string) error {
			return b.Messages.Complete(ctx, "acme", "q", token)
		},
	} {
		path := filepath.Join(t.TempDir(), "f.db")
		synctest.Test(t, func(t *testing.T) {
			s, err := openStores(t.Context(), db.Options{Path: path, Serve: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			b := New(Options{Store: s.Bus})
			if _, _, err := b.Queues.Put(t.Context(), "acme", "q", forebay.MessageQueueSettings{LockSeconds: 300, AutoDeleteOnIdleSeconds: 300}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Messages.Send(t.Context(), "acme", "q", []forebay.NewMessage{text(strings.Repeat("x", 10))}); err != nil {
				t.Fatal(err)
			}
			got, err := b.Messages.Receive(t.Context(), "acme", "q", forebay.ReceiveRequest{})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			<-time.After(4 * time.Minute)
			if err := do(t.Context(), b, got[0].LockToken); err != nil {
				t.Fatal(err)
			}
			<-time.After(4 * time.Minute)
			if _, found, err := s.Bus.MessageQueue(t.Context(), "acme/q"); err != nil || !found {
				t.Errorf("%s: the queue is gone (%v)", what, err)
			}
			<-time.After(7 * time.Minute)
			if _, found, err := s.Bus.MessageQueue(t.Context(), "acme/q"); err != nil || found {
				t.Errorf("%s: the queue is still there (%v)", what, err)
			}
		})
	}
}
