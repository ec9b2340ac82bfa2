package messages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
)

// Topics measures what a message costs that goes to many subscriptions.
func Topics(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	messages := b.Size(5000, 2000)
	const direct, one, many, filtered = "a queue", "1 subscription", "20 subscriptions", "20 with SQL filters"
	t := measure.Table{
		Title: "Fan-out of a topic",
		Text: fmt.Sprintf(`64 publishers send %s messages of 1 KiB one by one, in process; then 64 receivers empty all subscriptions, at most %d at a time.
Filters: each subscription has the SQL filter "colour = 'green' AND size > n", and a message gets to half of them. Copies count as
received, and per copy is the processor time of receiving.`, measure.Format(float64(messages)), atOnce),
		Columns: []string{"published/s", "copies/s", "publish p50 ms", "publish p99 ms", receivedRate, messageCPU},
	}
	on, err := measure.Engines(ctx, b)
	if err != nil {
		return t, err
	}
	var contenders []measure.Contender
	for _, engine := range measure.EngineNames {
		for _, c := range []struct {
			name          string
			subscriptions int
			filter        bool
		}{{direct, 0, false}, {one, 1, false}, {many, 20, false}, {filtered, 20, true}} {
			contenders = append(contenders, measure.Contender{Name: engine + ", " + c.name, Round: func(ctx context.Context) (measure.Sample, error) {
				return fanOut(ctx, b, on[engine], messages, c.subscriptions, c.filter)
			}})
		}
	}
	if err := t.TakeTurns(ctx, min(3, b.Rounds), contenders...); err != nil {
		return t, err
	}
	for _, engine := range measure.EngineNames {
		t.Note("%s: copies a second with 20 subscriptions as a multiple of a queue's messages: %s", engine,
			measure.Format(t.Median(engine+", "+many, "copies/s")/t.Median(engine+", "+direct, "copies/s")))
	}
	return t, nil
}

// fanOut publishes to a topic with so many subscriptions, or sends to a queue, and receives all
// copies.
func fanOut(ctx context.Context, b *measure.Bench, on measure.Engine, messages, subscriptions int, filter bool) (s measure.Sample, err error) {
	m, err := startMessaging(ctx, on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	const name = "bench"
	entities, publish := []string{name}, m.Messages.Send
	if subscriptions == 0 {
		_, _, err = m.Queues.Put(ctx, forebay.DefaultTenant, name, forebay.MessageQueueSettings{LockSeconds: messageLock})
	} else {
		publish = m.Messages.Publish
		entities, err = m.subscribe(ctx, name, subscriptions, filter)
	}
	if err != nil {
		return nil, err
	}
	copies := messages * len(entities)
	if filter {
		copies /= 2
	}
	begun := time.Now()
	took, err := measure.Produce(messages, func() error {
		message := forebay.NewMessage{Body: &measure.Text, Properties: forebay.Properties{"colour": "green", "size": int64(subscriptions / 2)}}
		_, err := publish(ctx, forebay.DefaultTenant, name, []forebay.NewMessage{message})
		return err
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(begun).Seconds()
	slices.Sort(took)
	if err := on.Prepare(ctx); err != nil {
		return nil, err
	}
	next := make([]int, measure.Workers)
	s, err = m.drain(b, copies, func(receiver int) (int, error) {
		next[receiver]++
		return m.receive(ctx, entities[(receiver+next[receiver])%len(entities)])
	})
	if err != nil {
		return nil, err
	}
	s["published/s"], s["copies/s"] = float64(messages)/seconds, float64(copies)/seconds
	s["publish p50 ms"], s["publish p99 ms"] = measure.Percentile(took, 0.5), measure.Percentile(took, 0.99)
	return s, nil
}

// subscribe makes a topic with so many subscriptions and returns their paths.
func (m *messaging) subscribe(ctx context.Context, topic string, subscriptions int, filter bool) (paths []string, err error) {
	if _, _, err := m.Topics.Put(ctx, forebay.DefaultTenant, topic, forebay.TopicSettings{}); err != nil {
		return nil, err
	}
	for i := range subscriptions {
		settings := forebay.SubscriptionSettings{MessageQueueSettings: forebay.MessageQueueSettings{LockSeconds: messageLock}}
		if filter {
			rule := forebay.RuleSettings{SQLFilter: fmt.Sprintf("colour = 'green' AND size > %d", i)}
			settings.Rules = []forebay.NewRule{{Name: "green", RuleSettings: rule}}
		}
		name := "s" + strconv.Itoa(i)
		if _, _, err := m.Subscriptions.Put(ctx, forebay.DefaultTenant, topic, name, settings); err != nil {
			return nil, err
		}
		paths = append(paths, forebay.SubscriptionPath(topic, name))
	}
	return paths, nil
}
