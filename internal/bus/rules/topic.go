// Package rules decides which subscriptions of a topic get a copy of a message, and what each
// copy holds.
//
// A [Topic] is a version of a topic with its subscriptions and their compiled rules. A [Cache]
// keeps the topics of a process. [Topic.Judge] applies the rules to the messages of one call, and
// [Topic.Pick] and [Topic.PickSome] to one message. Applying rules costs steps. Every caller
// brings a number of steps, so that slow rules end with [ErrSteps]. A message that needs more
// steps than a transaction may take goes to [Slow], whose goroutines judge it outside.
//
// The package does no I/O. Package bus reads topics and rules from the database and stores the
// copies. Q is what bus needs to know of a subscription to store a copy in it.
package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/filter"
	"github.com/forebayhq/forebay/internal/turns"
)

// Topic is a topic as of one version, with the rules of its subscriptions.
type Topic[Q any] struct {
	No            int64
	Version       int64
	DefaultTTL    time.Duration
	Subscriptions []Subscription[Q]
	Costly        atomic.Bool // the rules took too many steps for a message in a transaction
}

// Subscription is a subscription of a topic. Its rules apply once [Topic.Compile] has made them
// ready.
type Subscription[Q any] struct {
	No                     int64
	Queue                  Q
	DeadLetterFilterErrors bool // a message that the rules cannot judge is dead-lettered

	stored   []storedRule   // by name
	compiled []*filter.Rule // of stored, in the same order
	all      bool           // the rules make one copy of every message, whatever it holds
}

// What a subscription and a rule take in memory, as measured: a compiled rule takes up to 27 times
// as much as its text.
const (
	subscriptionBytes = 1000
	compiledBytes     = 27 // for each byte that is stored
)

// bytes is about what the topic takes in memory, with its compiled rules.
func (t *Topic[Q]) bytes() (n int) {
	for i := range t.Subscriptions {
		n += subscriptionBytes
		for _, rule := range t.Subscriptions[i].stored {
			n += compiledBytes * len(rule.settings)
		}
	}
	return n
}

// storedRule is a rule as the database has it.
type storedRule struct{ name, settings string }

// AddRule adds a rule as it is stored: its settings in JSON.
func (s *Subscription[Q]) AddRule(name string, settings []byte) {
	s.stored = append(s.stored, storedRule{name, string(settings)})
}

// Compile makes the rules of all subscriptions ready. Compiling thousands takes long, so it takes
// over the rules that former has compiled already; nil: there are none. It pauses when the turn
// is over and returns an error if nobody wants the rules any more.
func (t *Topic[Q]) Compile(former *Topic[Q], turn *turns.Turn) error {
	known := map[int64]*Subscription[Q]{}
	if former != nil {
		for i := range former.Subscriptions {
			known[former.Subscriptions[i].No] = &former.Subscriptions[i]
		}
	}
	for i := range t.Subscriptions {
		if err := t.Subscriptions[i].compile(known[t.Subscriptions[i].No], turn); err != nil {
			return err
		}
	}
	return nil
}

func (s *Subscription[Q]) compile(former *Subscription[Q], turn *turns.Turn) error {
	byName := func(a, b storedRule) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(s.stored, byName)
	s.compiled = make([]*filter.Rule, len(s.stored))
	for n, rule := range s.stored {
		if former != nil {
			at, found := slices.BinarySearchFunc(former.stored, rule, byName)
			if found && former.stored[at] == rule {
				s.compiled[n] = former.compiled[at]
				continue
			}
		}
		if err := turn.Pause(); err != nil {
			return err
		}
		s.compiled[n] = compileRule(rule.name, []byte(rule.settings))
	}
	s.all = len(s.compiled) == 1 && s.compiled[0].Filter == filter.Constant(true) && s.compiled[0].Action == nil
	return nil
}

// compileRule compiles a rule. A rule that this version of Forebay cannot read, though another
// version wrote it, fails for every message. The other rules of the topic still work.
func compileRule(name string, stored []byte) *filter.Rule {
	var settings forebay.RuleSettings
	err := json.Unmarshal(stored, &settings)
	if err == nil {
		var r *filter.Rule
		if r, err = filter.Compile(name, settings); err == nil {
			return r
		}
	}
	return &filter.Rule{Name: name, Filter: unreadable{err}}
}

// unreadable is the filter of a rule that cannot be read.
type unreadable struct{ err error }

func (u unreadable) Matches(*filter.Message) (bool, error) {
	return false, &filter.EvaluationError{Message: u.err.Error()}
}

// Copy is a copy that a subscription is to get; with a reason, in its dead-letter subqueue.
type Copy[Q any] struct {
	To      *Subscription[Q]
	Content *message.Content
	Why     *message.DeadLettering
}

// ErrSteps says that judging would take more steps than there are. It has the code of ErrFanOut,
// so errors.Is takes either for the other: both say that this is too much at once.
var ErrSteps = &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "body",
	Message: "the rules of the subscriptions take too long to judge this at once; send fewer messages at a time, or ones with shorter properties, or make the rules simpler"}

// ErrFanOut says that the subscriptions would get more copies than one call may make.
var ErrFanOut = &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "body",
	Message: fmt.Sprintf("the subscriptions would store more than %d copies or %d MiB at once; send fewer messages at a time, or smaller ones", MaxCopies, MaxCopyBytes>>20)}
