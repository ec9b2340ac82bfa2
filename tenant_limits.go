package forebay

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// LimitName names a limit on what one tenant may have or do.
type LimitName string

// What is limited. The first two are rates, ScheduleAhead is a time, and the others are amounts
// that exist at once.
const (
	LimitKeyRequests         LimitName = "key_requests_per_second"
	LimitRequests            LimitName = "requests_per_second"
	LimitScheduleAhead       LimitName = "schedule_ahead_days"
	LimitWaitingJobs         LimitName = "waiting_jobs"
	LimitWaitingMessages     LimitName = "waiting_messages"
	LimitScheduled           LimitName = "scheduled"
	LimitStoredBytes         LimitName = "stored_bytes"
	LimitSessions            LimitName = "sessions"
	LimitDocuments           LimitName = "documents"
	LimitFiles               LimitName = "files"
	LimitBatches             LimitName = "batches"
	LimitMessageQueues       LimitName = "message_queues"
	LimitTopics              LimitName = "topics"
	LimitSubscriptions       LimitName = "subscriptions"
	LimitRules               LimitName = "rules"
	LimitWebhooks            LimitName = "webhooks"
	LimitOrchestrations      LimitName = "orchestrations"
	LimitOrchestrationEvents LimitName = "orchestration_events"
	LimitKeys                LimitName = "api_keys"
)

// TenantLimits are limits on one tenant. nil: the default; 0: no limit.
type TenantLimits struct {
	KeyRequests         *int64 `json:"key_requests_per_second,omitempty" koanf:"key_requests_per_second" doc:"requests a second with one API key"`
	Requests            *int64 `json:"requests_per_second,omitempty" koanf:"requests_per_second" doc:"requests a second with all keys together"`
	ScheduleAhead       *int64 `json:"schedule_ahead_days,omitempty" koanf:"schedule_ahead_days" doc:"days ahead that jobs, messages and orchestrations may be scheduled"`
	WaitingJobs         *int64 `json:"waiting_jobs,omitempty" koanf:"waiting_jobs" doc:"jobs that are not over: waiting, scheduled or running"`
	WaitingMessages     *int64 `json:"waiting_messages,omitempty" koanf:"waiting_messages" doc:"messages in queues and subscriptions, dead letters included"`
	Scheduled           *int64 `json:"scheduled,omitempty" koanf:"scheduled" doc:"jobs and messages that wait for the time they are scheduled for"`
	StoredBytes         *int64 `json:"stored_bytes,omitempty" koanf:"stored_bytes" doc:"bytes of payloads, messages, session states, documents and files"`
	Sessions            *int64 `json:"sessions,omitempty" koanf:"sessions" doc:"sessions of queues of messages"`
	Documents           *int64 `json:"documents,omitempty" koanf:"documents"`
	Files               *int64 `json:"files,omitempty" koanf:"files" doc:"files of OpenAI's API"`
	Batches             *int64 `json:"batches,omitempty" koanf:"batches" doc:"batches of OpenAI's API that are not over"`
	MessageQueues       *int64 `json:"message_queues,omitempty" koanf:"message_queues"`
	Topics              *int64 `json:"topics,omitempty" koanf:"topics"`
	Subscriptions       *int64 `json:"subscriptions,omitempty" koanf:"subscriptions" doc:"of all topics"`
	Rules               *int64 `json:"rules,omitempty" koanf:"rules" doc:"of all subscriptions"`
	Webhooks            *int64 `json:"webhooks,omitempty" koanf:"webhooks"`
	Orchestrations      *int64 `json:"orchestrations,omitempty" koanf:"orchestrations" doc:"instances that are not over"`
	OrchestrationEvents *int64 `json:"orchestration_events,omitempty" koanf:"orchestration_events" doc:"events that instances have not taken yet"`
	Keys                *int64 `json:"api_keys,omitempty" koanf:"api_keys" doc:"API keys that are not revoked"`
}

// MaxTenantLimit is the highest value of any limit.
const MaxTenantLimit = 1 << 50

// limit is one of a tenant's limits.
type limit struct {
	name     LimitName
	of       func(*TenantLimits) **int64
	standard int64
	remedy   string // what to do at it
	drains   bool   // there will be room without anybody's doing
}

// operatorRemedy ends every refusal.
const operatorRemedy = ", or ask an operator to raise it"

var tenantLimits = []limit{
	{LimitKeyRequests, func(l *TenantLimits) **int64 { return &l.KeyRequests }, 2_000, "send fewer requests, or more in each", false},
	{LimitRequests, func(l *TenantLimits) **int64 { return &l.Requests }, 10_000, "send fewer requests, or more in each", false},
	{LimitScheduleAhead, func(l *TenantLimits) **int64 { return &l.ScheduleAhead }, 3_660, "schedule it earlier", false},
	{LimitWaitingJobs, func(l *TenantLimits) **int64 { return &l.WaitingJobs }, 2_000_000, "wait until jobs are over, or cancel some", true},
	{LimitWaitingMessages, func(l *TenantLimits) **int64 { return &l.WaitingMessages }, 2_000_000, "receive messages, or purge dead letters", true},
	{LimitScheduled, func(l *TenantLimits) **int64 { return &l.Scheduled }, 1_000_000, "wait until their time has come, or cancel some", true},
	{LimitStoredBytes, func(l *TenantLimits) **int64 { return &l.StoredBytes }, 1 << 40, "purge jobs, messages, documents or files", false},
	{LimitSessions, func(l *TenantLimits) **int64 { return &l.Sessions }, 1_000_000, "receive the messages of sessions and clear their states", false},
	{LimitDocuments, func(l *TenantLimits) **int64 { return &l.Documents }, 1_000_000, "delete documents", false},
	{LimitFiles, func(l *TenantLimits) **int64 { return &l.Files }, 100_000, "delete files", false},
	{LimitBatches, func(l *TenantLimits) **int64 { return &l.Batches }, 1_000, "wait until batches are over, or cancel some", true},
	{LimitMessageQueues, func(l *TenantLimits) **int64 { return &l.MessageQueues }, 10_000, "delete queues", false},
	{LimitTopics, func(l *TenantLimits) **int64 { return &l.Topics }, 10_000, "delete topics", false},
	{LimitSubscriptions, func(l *TenantLimits) **int64 { return &l.Subscriptions }, 50_000, "delete subscriptions", false},
	{LimitRules, func(l *TenantLimits) **int64 { return &l.Rules }, 100_000, "delete rules", false},
	{LimitWebhooks, func(l *TenantLimits) **int64 { return &l.Webhooks }, 1_000, "delete webhooks", false},
	{LimitOrchestrations, func(l *TenantLimits) **int64 { return &l.Orchestrations }, 1_000_000, "wait until instances are over, or terminate some", true},
	{LimitOrchestrationEvents, func(l *TenantLimits) **int64 { return &l.OrchestrationEvents }, 1_000_000, "wait until instances have taken theirs", true},
	{LimitKeys, func(l *TenantLimits) **int64 { return &l.Keys }, 1_000, "revoke keys", false},
}

// LimitNames returns the names of all limits, in the order in which they are shown.
func LimitNames() []LimitName {
	names := make([]LimitName, len(tenantLimits))
	for i, l := range tenantLimits {
		names[i] = l.name
	}
	return names
}

func limitNamed(name LimitName) limit {
	for _, l := range tenantLimits {
		if l.name == name {
			return l
		}
	}
	return limit{}
}

// About says what is limited, in a few words.
func (name LimitName) About() string {
	for f := range reflect.TypeFor[TenantLimits]().Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == string(name) {
			return cmp.Or(f.Tag.Get("doc"), strings.ReplaceAll(tag, "_", " "))
		}
	}
	return ""
}

// Field returns the address of the limit's field; nil if there is no limit of that name.
func (l *TenantLimits) Field(name LimitName) **int64 {
	if of := limitNamed(name).of; of != nil {
		return of(l)
	}
	return nil
}

// Over returns l with unset limits taken from other.
func (l TenantLimits) Over(other TenantLimits) TenantLimits {
	for _, one := range tenantLimits {
		if mine := one.of(&l); *mine == nil {
			*mine = *one.of(&other)
		}
	}
	return l
}

// Of returns the limit of that name, its default if l does not set it. 0: no limit.
func (l TenantLimits) Of(name LimitName) int64 {
	one := limitNamed(name)
	if v := *one.of(&l); v != nil {
		return *v
	}
	return one.standard
}

// Check reports what is wrong with the limits, as an error about a part of field, or nil.
func (l TenantLimits) Check(field string) error {
	for _, one := range tenantLimits {
		if v := *one.of(&l); v != nil && (*v < 0 || *v > MaxTenantLimit) {
			return Invalid(field+string(one.name), "goes from 0, which is no limit, to %d", int64(MaxTenantLimit))
		}
	}
	return nil
}

// LimitUse is a tenant's limit and how much of it is used.
type LimitUse struct {
	Name  LimitName `json:"name"`
	Used  *int64    `json:"used,omitempty" doc:"how much there is; not told of rates and times"`
	Limit int64     `json:"limit" doc:"0: no limit"`
	Set   bool      `json:"set,omitempty" doc:"for this tenant; missing: it is the default"`
}

// LimitReached returns the error that refuses n more than a tenant's limit allows. It says when
// to try again if room appears by itself.
func LimitReached(name LimitName, used, n, most int64) *Error {
	l := limitNamed(name)
	e := Errorf(CodeTenantLimit, "the tenant's limit %s is reached: %d of %d are used and %d more were asked for; %s"+operatorRemedy, name, used, most, n, l.remedy)
	if l.drains {
		e.RetryAfter = limitRetry
	}
	return e
}

// limitRetry is the shortest wait for a client that was refused at a limit.
const limitRetry = 2 * time.Second

// RateLimited returns the error that refuses a request beyond a rate. Each of several processes
// has an equal part of the rate. after is how long it takes until there is room.
func RateLimited(name LimitName, most, processes int64, after time.Duration) *Error {
	shared := ""
	if processes > 1 {
		shared = fmt.Sprintf(", shared by %d processes", processes)
	}
	e := Errorf(CodeRateLimited, "the tenant's limit %s is reached: %d requests a second%s; %s"+operatorRemedy, name, most, shared, limitNamed(name).remedy)
	e.RetryAfter = after
	return e
}

// TooFarAhead returns the error that refuses a time further ahead than the tenant may schedule.
func TooFarAhead(field string, days int64) *Error {
	e := Errorf(CodeTenantLimit, "%s", fmt.Sprintf("is more than %d days ahead, the tenant's limit %s; %s", days, LimitScheduleAhead, limitNamed(LimitScheduleAhead).remedy+operatorRemedy))
	e.Field = field
	return e
}
