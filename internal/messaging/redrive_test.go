package messaging

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// bodies peeks at all messages of an entity.
func bodies(t *testing.T, b *Service, path string) (list []string) {
	t.Helper()
	for from := int64(0); ; {
		messages, next, err := b.Messages.Peek(t.Context(), "acme", path, PeekFilter{From: from, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			list = append(list, *m.Body)
		}
		if next == 0 {
			return list
		}
		from = next
	}
}

// deadLetterAll receives all that there is and dead-letters it for that reason.
func deadLetterAll(t *testing.T, b *Service, path, reason string) (numbers []int64) {
	t.Helper()
	for {
		got, err := b.Messages.Receive(t.Context(), "acme", path, forebay.ReceiveRequest{MaxMessages: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return numbers
		}
		for _, m := range got {
			if m.State != forebay.MessageLocked {
				t.Errorf("a received message is %s", m.State)
			}
			numbers = append(numbers, m.SequenceNumber)
			if err := b.Messages.DeadLetter(t.Context(), "acme", path, m.LockToken, forebay.Settlement{Reason: reason}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func testDeadLettersAreFoundByReason(t *testing.T, b *Service) {
	ctx := t.Context()
	const others = 1100 // more than one page looks at
	for from := 0; from < others; from += 100 {
		many := make([]forebay.NewMessage, 100)
		for i := range many {
			many[i] = text("other")
		}
		if _, err := b.Messages.Send(ctx, "acme", "orders", many); err != nil {
			t.Fatal(err)
		}
	}
	deadLetterAll(t, b, "orders", "other")
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{text("1"), text("2"), text("3")}); err != nil {
		t.Fatal(err)
	}
	numbers := deadLetterAll(t, b, "orders", "bad")
	var found []int64
	pages := 0
	for from := int64(0); ; pages++ {
		messages, next, err := b.Messages.Peek(ctx, "acme", "orders/$deadletterqueue", PeekFilter{From: from, Reason: "bad", Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			found = append(found, m.SequenceNumber)
		}
		if from = next; next == 0 {
			break
		}
	}
	if !slices.Equal(found, numbers) || pages != 2 {
		t.Errorf("found %v of %v on %d pages before the last", found, numbers, pages)
	}
	if _, _, err := b.Messages.Peek(ctx, "acme", "orders", PeekFilter{Reason: "bad"}); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("a queue by the reason of its dead letters: %v", err)
	}
}

func testDeadLettersAreMended(t *testing.T, b *Service) {
	ctx := t.Context()
	var many []forebay.NewMessage
	for i := range 100 {
		many = append(many, text(fmt.Sprintf("%03d", i)))
	}
	for range 3 { // more than one step takes
		if _, err := b.Messages.Send(ctx, "acme", "orders", many); err != nil {
			t.Fatal(err)
		}
	}
	deadLetterAll(t, b, "orders", "Bad")
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{{MessageID: "odd", Body: many[0].Body, Properties: forebay.Properties{"n": int64(1)}}}); err != nil {
		t.Fatal(err)
	}
	odd := deadLetterAll(t, b, "orders", "Odd")
	held, err := b.Messages.Receive(ctx, "acme", "orders/$deadletterqueue", forebay.ReceiveRequest{})
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	if m, err := b.Messages.Get(ctx, "acme", "orders/$deadletterqueue", held[0].SequenceNumber); err != nil || m.State != forebay.MessageLocked || m.LockedUntil == nil {
		t.Errorf("a locked dead letter is %+v (%v)", m, err)
	}
	redrive := func(filter forebay.DeadMessageFilter, edit *forebay.MessageEdit) forebay.RedrivenMessages {
		t.Helper()
		report, err := b.DeadLetters.Redrive(ctx, "acme", "orders", forebay.RedriveMessagesRequest{DeadMessageFilter: filter, Edit: edit})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	if r := redrive(forebay.DeadMessageFilter{Reason: "Bad", DryRun: true}, nil); r.Redriven != 299 || r.More {
		t.Errorf("counted %+v of 299 that are not locked", r)
	}
	if r := redrive(forebay.DeadMessageFilter{Reason: "Bad", MaxMessages: 250}, nil); r.Redriven != 250 || !r.More {
		t.Errorf("redrove %+v of 250", r)
	}
	if r := redrive(forebay.DeadMessageFilter{Reason: "Bad"}, nil); r.Redriven != 49 || r.More {
		t.Errorf("then %+v", r)
	}
	want := slices.Concat(bodiesOf(many), bodiesOf(many), bodiesOf(many))[1:]
	if got := bodies(t, b, "orders"); !slices.Equal(got, want) {
		t.Errorf("%d messages are back, or not in their order", len(got))
	}
	if q, err := b.Queues.Get(ctx, "acme", "orders"); err != nil || q.Active != 299 || q.DeadLetter != 2 {
		t.Errorf("counts %+v (%v)", q, err)
	}
	fixed := "fixed"
	if r := redrive(forebay.DeadMessageFilter{SequenceNumbers: odd}, &forebay.MessageEdit{Body: &fixed, Properties: forebay.Properties{"region": "eu"}}); r.Redriven != 1 {
		t.Errorf("redrove %+v", r)
	}
	var last forebay.Message
	for from := int64(1); from != 0 && err == nil; {
		var back []forebay.Message
		if back, from, err = b.Messages.Peek(ctx, "acme", "orders", PeekFilter{From: from, Limit: 100}); err == nil {
			last = back[len(back)-1]
		}
	}
	if err != nil || *last.Body != "fixed" || len(last.Properties) != 1 || last.Properties["region"] != "eu" || last.MessageID != "odd" || last.DeliveryCount != 0 || last.DeadLetterReason != "" {
		t.Errorf("the mended message is %+v (%v)", last, err)
	}
	// A stale token settles nothing of what was dealt with since.
	if err := b.Messages.Abandon(ctx, "acme", "orders/$deadletterqueue", held[0].LockToken, forebay.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if r, err := b.DeadLetters.Purge(ctx, "acme", "orders/$deadletterqueue", forebay.DeadMessageFilter{All: true}); err != nil || r.Purged != 1 || r.More {
		t.Errorf("purged %+v (%v)", r, err)
	}
	if got := bodies(t, b, "orders/$deadletterqueue"); len(got) != 0 {
		t.Errorf("%d dead letters are left", len(got))
	}
	large := strings.Repeat("x", 2000)
	for name, c := range map[string]struct {
		filter forebay.DeadMessageFilter
		edit   *forebay.MessageEdit
	}{
		"nothing selected":   {},
		"two ways":           {filter: forebay.DeadMessageFilter{All: true, Reason: "Bad"}},
		"a negative up_to":   {filter: forebay.DeadMessageFilter{All: true, UpTo: -1}},
		"too many":           {filter: forebay.DeadMessageFilter{All: true, MaxMessages: 4001}},
		"an edit of many":    {filter: forebay.DeadMessageFilter{All: true}, edit: &forebay.MessageEdit{Body: &fixed}},
		"two bodies":         {filter: forebay.DeadMessageFilter{SequenceNumbers: odd}, edit: &forebay.MessageEdit{Body: &fixed, BodyBase64: []byte("x")}},
		"too many at a time": {filter: forebay.DeadMessageFilter{SequenceNumbers: make([]int64, 101)}},
	} {
		if _, err := b.DeadLetters.Redrive(ctx, "acme", "orders", forebay.RedriveMessagesRequest{DeadMessageFilter: c.filter, Edit: c.edit}); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	again := deadLetterAll(t, b, "orders", "Again")
	// What is sent back and dies again before the next call is not taken again: a repeated
	// redrive ends.
	r := redrive(forebay.DeadMessageFilter{Reason: "Again", MaxMessages: len(again) - 10}, nil)
	if r.Redriven != len(again)-10 || !r.More || r.UpTo < again[len(again)-1] {
		t.Errorf("redrove %+v of %d", r, len(again))
	}
	died := deadLetterAll(t, b, "orders", "Again")
	if next := redrive(forebay.DeadMessageFilter{Reason: "Again", UpTo: r.UpTo}, nil); next.Redriven != 10 || next.More {
		t.Errorf("then %+v, where 10 were left and %d had died again", next, len(died))
	}
	again = slices.Concat(died, deadLetterAll(t, b, "orders", "Again"))
	if _, err := b.DeadLetters.Redrive(ctx, "acme", "orders", forebay.RedriveMessagesRequest{DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: again[:1]},
		Edit: &forebay.MessageEdit{Body: &large}}); forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
		t.Errorf("an edit that is too large: %v", err)
	}
	if got := bodies(t, b, "orders/$deadletterqueue"); len(got) != len(again) {
		t.Errorf("%d of %d dead letters are left by what was refused", len(got), len(again))
	}
}

func bodiesOf(messages []forebay.NewMessage) (list []string) {
	for _, m := range messages {
		list = append(list, *m.Body)
	}
	return list
}

// What is mended of one subscription's copy is not changed in another's, with which it shares its
// body.
func testDeadLettersOfSubscriptions(t *testing.T, b *Service) {
	ctx := t.Context()
	if _, _, err := b.Topics.Put(ctx, "acme", "news", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eu", "us"} {
		settings := forebay.SubscriptionSettings{}
		sessions := name == "us"
		settings.RequiresSession = &sessions
		if _, _, err := b.Subscriptions.Put(ctx, "acme", "news", name, settings); err != nil {
			t.Fatal(err)
		}
	}
	body := strings.Repeat("b", 900)
	if _, err := b.Messages.Publish(ctx, "acme", "news", []forebay.NewMessage{{Body: &body, SessionID: "s"}}); err != nil {
		t.Fatal(err)
	}
	eu, us := "news/subscriptions/eu", "news/subscriptions/us"
	numbers := deadLetterAll(t, b, eu, "Bad")
	fixed := "fixed"
	if r, err := b.DeadLetters.Redrive(ctx, "acme", eu, forebay.RedriveMessagesRequest{DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: numbers}, Edit: &forebay.MessageEdit{Body: &fixed}}); err != nil || r.Redriven != 1 {
		t.Fatal(r, err)
	}
	session, found, err := b.Sessions.Accept(ctx, "acme", us, forebay.AcceptSessionRequest{})
	if err != nil || !found {
		t.Fatal(found, err)
	}
	got, err := b.Messages.ReceiveSession(ctx, "acme", us, session.SessionToken, forebay.ReceiveRequest{})
	if err != nil || len(got) != 1 || *got[0].Body != body {
		t.Fatal(got, err)
	}
	if err := b.Messages.DeadLetter(ctx, "acme", us, got[0].LockToken, forebay.Settlement{Reason: "Bad"}); err != nil {
		t.Fatal(err)
	}
	if r, err := b.DeadLetters.Redrive(ctx, "acme", us, forebay.RedriveMessagesRequest{DeadMessageFilter: forebay.DeadMessageFilter{All: true}}); err != nil || r.Redriven != 1 {
		t.Fatal(r, err)
	}
	if got := bodies(t, b, eu); !slices.Equal(got, []string{"fixed"}) {
		t.Errorf("one subscription has %q", got)
	}
	// The message is in its session again.
	if got, err := b.Messages.ReceiveSession(ctx, "acme", us, session.SessionToken, forebay.ReceiveRequest{}); err != nil || len(got) != 1 || *got[0].Body != body {
		t.Errorf("the other has %+v (%v)", got, err)
	}
}

// states counts the messages of an entity by state.
func states(t *testing.T, b *Service, path string) map[forebay.MessageState]int {
	t.Helper()
	counts := map[forebay.MessageState]int{}
	for from := int64(0); ; {
		messages, next, err := b.Messages.Peek(t.Context(), "acme", path, PeekFilter{From: from, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			counts[m.State]++
		}
		if from = next; next == 0 {
			return counts
		}
	}
}

// With a rate all but the first are scheduled, and a second call goes on where the first ended.
func testDeadLettersAtARate(t *testing.T, b *Service) {
	ctx := t.Context()
	if _, _, err := b.Topics.Put(ctx, "acme", "news", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Subscriptions.Put(ctx, "acme", "news", "eu", forebay.SubscriptionSettings{}); err != nil {
		t.Fatal(err)
	}
	var many []forebay.NewMessage
	for range 100 {
		many = append(many, text("x"))
	}
	for range 3 { // more than one step takes
		if _, err := b.Messages.Publish(ctx, "acme", "news", many); err != nil {
			t.Fatal(err)
		}
	}
	const path = "news/subscriptions/eu"
	deadLetterAll(t, b, path, "Bad")
	req := forebay.RedriveMessagesRequest{DeadMessageFilter: forebay.DeadMessageFilter{All: true, MaxMessages: 250}, RatePerSecond: 0.001}
	dry := req
	dry.DryRun = true
	if r, err := b.DeadLetters.Redrive(ctx, "acme", path, dry); err != nil || r.Redriven != 250 || r.NextAt != nil {
		t.Fatalf("a dry run counted %+v (%v)", r, err)
	}
	first, err := b.DeadLetters.Redrive(ctx, "acme", path, req)
	if err != nil || first.Redriven != 250 || !first.More || first.NextAt == nil {
		t.Fatalf("redrove %+v (%v)", first, err)
	}
	req.UpTo, req.FirstAt = first.UpTo, first.NextAt
	rest, err := b.DeadLetters.Redrive(ctx, "acme", path, req)
	if err != nil || rest.Redriven != 50 || rest.More || rest.NextAt != nil {
		t.Fatalf("then %+v (%v)", rest, err)
	}
	if got := states(t, b, path); got[forebay.MessageActive] != 1 || got[forebay.MessageScheduled] != 299 {
		t.Errorf("the subscription has %v", got)
	}
	var times []time.Time
	for from := int64(0); ; {
		messages, next, err := b.Messages.Peek(ctx, "acme", path, PeekFilter{From: from, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if m.State == forebay.MessageScheduled {
				times = append(times, *m.ScheduledTime)
			}
		}
		if from = next; next == 0 {
			break
		}
	}
	for i := 1; i < len(times); i++ {
		if gap := times[i].Sub(times[i-1]); gap < 1000*time.Second-time.Millisecond || gap > 1001*time.Second+time.Minute {
			t.Fatalf("message %d comes %v after the one before", i+1, gap)
		}
	}
	soon := time.Now().Add(time.Hour)
	late := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, req := range map[string]forebay.RedriveMessagesRequest{
		"a negative rate":       {RatePerSecond: -1},
		"a rate too low":        {RatePerSecond: 0.0001},
		"a rate too high":       {RatePerSecond: 1001},
		"no number":             {RatePerSecond: math.NaN()},
		"a time without a rate": {FirstAt: &soon},
		"a time too late":       {RatePerSecond: 1, FirstAt: &late},
	} {
		req.All = true
		if _, err := b.DeadLetters.Redrive(ctx, "acme", path, req); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testDeadLettersAreCounted(t *testing.T, b *Service) {
	ctx := t.Context()
	if groups, err := b.DeadLetters.Groups(ctx, "acme", "orders"); err != nil || len(groups.Groups) != 0 || !groups.Complete || groups.UpTo != 0 {
		t.Errorf("of none %+v (%v)", groups, err)
	}
	var last int64
	for i, reason := range []string{"Bad", "Odd", "Bad", ""} {
		if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{text(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
		last = deadLetterAll(t, b, "orders", reason)[0]
	}
	groups, err := b.DeadLetters.Groups(ctx, "acme", "orders/$deadletterqueue")
	if err != nil || groups.Counted != 4 || !groups.Complete || groups.UpTo != last || len(groups.Groups) != 3 {
		t.Fatalf("%+v (%v)", groups, err)
	}
	bad := groups.Groups[0]
	if bad.Reason != "Bad" || bad.Count != 2 || bad.NewestEnqueued.Before(bad.OldestEnqueued) || groups.Groups[1].Reason != "" || groups.Groups[2].Reason != "Odd" {
		t.Errorf("%+v", groups.Groups)
	}
	if m, err := b.Messages.Get(ctx, "acme", "orders/$deadletterqueue", bad.Example); err != nil || m.DeadLetterReason != "Bad" {
		t.Errorf("the example is %+v (%v)", m, err)
	}
	if all, err := b.DeadLetters.GroupsOfAll(ctx, "rival"); err != nil || len(all.Groups) != 0 || !all.Complete {
		t.Errorf("of all queues of another tenant %+v (%v)", all, err)
	}
	if _, err := b.DeadLetters.Groups(ctx, "rival", "orders"); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("of another tenant: %v", err)
	}
	if _, _, err := b.Topics.Put(ctx, "acme", "news", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.DeadLetters.Groups(ctx, "acme", "news"); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		t.Errorf("of a topic: %v", err)
	}
	if _, _, err := b.Subscriptions.Put(ctx, "acme", "news", "eu", forebay.SubscriptionSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Messages.Publish(ctx, "acme", "news", []forebay.NewMessage{text("1")}); err != nil {
		t.Fatal(err)
	}
	deadLetterAll(t, b, "news/subscriptions/eu", "Bad")
	all, err := b.DeadLetters.GroupsOfAll(ctx, "acme")
	if err != nil || all.Counted != 5 || !all.Complete || len(all.Groups) != 4 || all.Groups[0].Queue != "orders" || all.Groups[0].Count != 2 {
		t.Fatalf("of all queues %+v (%v)", all, err)
	}
	if i := slices.IndexFunc(all.Groups, func(g forebay.DeadMessageGroup) bool { return g.Queue == "news/subscriptions/eu" }); i < 0 || all.Groups[i].Reason != "Bad" || all.Groups[i].Count != 1 {
		t.Errorf("of a subscription %+v", all.Groups)
	}
}

// A dry run checks an edit, and changes nothing.
func testAnEditIsTried(t *testing.T, b *Service) {
	ctx := t.Context()
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{text("before")}); err != nil {
		t.Fatal(err)
	}
	numbers := deadLetterAll(t, b, "orders", "Bad")
	try := func(number int64, body string) (forebay.RedrivenMessages, error) {
		return b.DeadLetters.Redrive(ctx, "acme", "orders", forebay.RedriveMessagesRequest{Edit: &forebay.MessageEdit{Body: &body},
			DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: []int64{number}, DryRun: true}})
	}
	if r, err := try(numbers[0], "after"); err != nil || r.Redriven != 1 {
		t.Errorf("tried %+v (%v)", r, err)
	}
	if _, err := try(numbers[0], strings.Repeat("x", 2000)); forebay.CodeOf(err) != forebay.CodePayloadTooLarge && forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("a body that is too large: %v", err)
	}
	if _, _, err := b.Queues.Put(ctx, "acme", "orders", forebay.MessageQueueSettings{MaxMessageBytes: 64}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 100)
	for _, dry := range []bool{true, false} {
		if _, err := b.DeadLetters.Redrive(ctx, "acme", "orders", forebay.RedriveMessagesRequest{Edit: &forebay.MessageEdit{Body: &long},
			DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: numbers, DryRun: dry}}); forebay.CodeOf(err) != forebay.CodePayloadTooLarge && forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("a body that is too large for the queue, dry run %v: %v", dry, err)
		}
	}
	if r, err := try(numbers[0]+1000, "after"); err != nil || r.Redriven != 0 {
		t.Errorf("of a message that is not there %+v (%v)", r, err)
	}
	if got := bodies(t, b, "orders/$deadletterqueue"); !slices.Equal(got, []string{"before"}) {
		t.Errorf("there is %q", got)
	}
}

// An edit on a condition meets only the content that its tag is of.
func testAnEditOnACondition(t *testing.T, b *Service) {
	ctx, dead := t.Context(), "orders/$deadletterqueue"
	if _, err := b.Messages.Send(ctx, "acme", "orders", []forebay.NewMessage{{Properties: forebay.Properties{"a": "b"}}}); err != nil {
		t.Fatal(err)
	}
	number := deadLetterAll(t, b, "orders", "Bad")[0]
	tag := func() string {
		m, err := b.Messages.Get(ctx, "acme", dead, number)
		if err != nil || m.ETag == "" {
			t.Fatalf("%+v, %v", m, err)
		}
		return m.ETag
	}
	body := "mended"
	redrive := func(etag string, edit *forebay.MessageEdit, dry bool) (int, error) {
		r, err := b.DeadLetters.Redrive(forebay.WithCondition(ctx, forebay.IfMatch(etag)), "acme", "orders", forebay.RedriveMessagesRequest{Edit: edit,
			DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: []int64{number}, DryRun: dry}})
		return r.Redriven, err
	}
	shown := tag()
	got, err := b.Messages.Receive(ctx, "acme", dead, forebay.ReceiveRequest{MaxMessages: 1})
	if err != nil || len(got) != 1 {
		t.Fatalf("received %d, %v", len(got), err)
	}
	if _, err := redrive(shown, &forebay.MessageEdit{Body: &body}, false); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
		t.Errorf("while it is held: %v", err)
	}
	if err := b.Messages.Abandon(ctx, "acme", dead, got[0].LockToken, forebay.Settlement{Properties: forebay.Properties{"a": "c"}}); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		if n, err := redrive(shown, &forebay.MessageEdit{Body: &body}, dry); forebay.CodeOf(err) != forebay.CodePreconditionFailed || n != 0 {
			t.Errorf("with the tag from before, dry run %v: %d, %v", dry, n, err)
		}
	}
	now := tag()
	if _, err := redrive(now, nil, false); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("without an edit: %v", err)
	}
	if n, err := redrive(now, &forebay.MessageEdit{Body: &body}, false); err != nil || n != 1 {
		t.Errorf("with the tag of now: %d, %v", n, err)
	}
	if got := bodies(t, b, "orders"); !slices.Equal(got, []string{body}) {
		t.Errorf("there is %q", got)
	}
}
