//go:build hostile

package hostile

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// One key publishes what costs the writer much.
var publishes = register(
	Attack{Name: "publishes to costly rules", Postgres: true, Window: 700 * time.Millisecond, Prepare: func(t *Target) map[string]string {
		p := t.attacker()
		p.must(t, "PUT", "/v1/topics/costly", struct{}{}, nil)
		// Each filter takes about as many steps as one evaluation may; all together take too long.
		rules := make([]map[string]any, 100)
		for i := range rules {
			rules[i] = map[string]any{"name": fmt.Sprintf("r%d", i), "sql_filter": fmt.Sprintf("n = %d OR p LIKE '%%%s%%b'", i, strings.Repeat("a", 900))}
		}
		for i := range 20 {
			p.must(t, "PUT", fmt.Sprintf("/v1/topics/costly/subscriptions/s%d", i), map[string]any{"rules": rules, "dead_letter_on_filter_error": false}, nil)
		}
		return nil
	}, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		message := map[string]any{"body": "x", "application_properties": map[string]any{"p": strings.Repeat("a", 30_000)}}
		s.Ready()
		s.Flood(ctx, 4, func(ctx context.Context, _ int) Answer {
			return p.call(ctx, "POST", "/v1/topics/costly/messages", message)
		})
		return nil
	}},
	Attack{Name: "large publishes to 200 subscriptions", Postgres: true, Window: 700 * time.Millisecond, Prepare: func(t *Target) map[string]string {
		p := t.attacker()
		p.must(t, "PUT", "/v1/topics/wide", map[string]any{"default_message_ttl_seconds": 1}, nil)
		for i := range 200 {
			p.must(t, "PUT", fmt.Sprintf("/v1/topics/wide/subscriptions/s%d", i), struct{}{}, nil)
		}
		return nil
	}, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		message := map[string]any{"body": strings.Repeat("x", 900_000)}
		s.Ready()
		var published atomic.Int32
		s.Flood(ctx, 2, func(ctx context.Context, _ int) Answer {
			if published.Add(1) > 3 { // each may take 180 MB of the disk
				<-ctx.Done()
				return Answer{Err: ctx.Err()}
			}
			return p.call(ctx, "POST", "/v1/topics/wide/messages", message)
		})
		return nil
	}},
)
