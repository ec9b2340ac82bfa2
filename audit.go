package forebay

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
	"strings"
	"time"
)

// AuditEntry is one act of an operator, or one event of a job or a budget. It is written in the
// transaction of that act or event. Entries form a chain: each holds the hash of the one before,
// and its own hash covers that and all its fields.
type AuditEntry struct {
	Number       int64     `json:"number" doc:"1, 2, 3, …, without gaps"`
	At           time.Time `json:"at"`
	Tenant       string    `json:"tenant" doc:"empty: no single tenant's"`
	Actor        string    `json:"actor" doc:"id of the API key, person: and a name for who signed in by OpenID Connect, local for a caller without a key, or forebay for what happened without anybody: an event of a job or a budget"`
	Action       string    `json:"action" doc:"such as pause, or the type of the event"`
	Target       string    `json:"target" doc:"what the act was about"`
	Detail       string    `json:"detail" doc:"more about it, usually JSON"`
	PreviousHash string    `json:"previous_hash" doc:"of the entry before, in hexadecimal; zeros before the first"`
	Hash         string    `json:"hash" doc:"SHA-256, in hexadecimal"`
}

// auditTag begins the hashed bytes, so that the hash of an entry is the hash of nothing else.
const auditTag = "forebay audit entry 1\n"

// ComputeHash returns what Hash must be. It is the SHA-256 of these fields in this order: a tag,
// the previous hash, the number, the time in Unix milliseconds, tenant, actor, action, target and
// detail. Number and time have 8 bytes each, and each text comes after its length in 8 bytes.
// Integers are big-endian. It returns "" if PreviousHash is no hash.
func (e AuditEntry) ComputeHash() string {
	previous, err := hex.DecodeString(e.PreviousHash)
	if err != nil || len(previous) != sha256.Size {
		return ""
	}
	h := sha256.New()
	h.Write([]byte(auditTag))
	h.Write(previous)
	writeInt(h, e.Number)
	writeInt(h, e.At.UnixMilli())
	for _, field := range []string{e.Tenant, e.Actor, e.Action, e.Target, e.Detail} {
		writeInt(h, int64(len(field)))
		h.Write([]byte(field))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeInt(h hash.Hash, v int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(v))
	h.Write(b[:])
}

// AuditHead identifies the end of an audit log, as "<number>:<hash>". Whoever keeps one outside
// the database can prove later that no entry up to it was changed or removed. The zero value is
// the head of an empty log.
type AuditHead struct {
	Number int64
	Hash   string // in hexadecimal
}

// NoAuditHash is the PreviousHash of the first entry.
var NoAuditHash = strings.Repeat("0", 2*sha256.Size)

// String returns "<number>:<hash>".
func (h AuditHead) String() string {
	if h.Number == 0 {
		return "0:" + NoAuditHash
	}
	return strconv.FormatInt(h.Number, 10) + ":" + h.Hash
}

// ParseAuditHead parses what String returns. "" is the head of an empty log.
func ParseAuditHead(s string) (AuditHead, error) {
	if s == "" || s == (AuditHead{}).String() {
		return AuditHead{}, nil
	}
	number, hash, _ := strings.Cut(s, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if raw, hexErr := hex.DecodeString(hash); err != nil || hexErr != nil || n < 1 || len(raw) != sha256.Size {
		return AuditHead{}, Invalid("from", "is not the head of an audit log: <number>:<hash>")
	}
	return AuditHead{Number: n, Hash: strings.ToLower(hash)}, nil
}

// AuditVerification is the result of checking a part of the chain.
type AuditVerification struct {
	Intact  bool        `json:"intact"`
	Checked int64       `json:"checked" doc:"entries looked at"`
	Head    string      `json:"head" doc:"the last good entry, as number:hash; from where to go on"`
	Done    bool        `json:"done" doc:"the end of the log was reached"`
	Broken  *AuditBreak `json:"broken,omitempty"`
}

// AuditBreak is the first entry that is not as it was written.
type AuditBreak struct {
	Number int64  `json:"number"`
	Reason string `json:"reason"`
}

// Actors that are not the id of an API key.
const (
	LocalActor  = "local"   // a caller without an API key: on a server without keys, or beside it
	ServerActor = "forebay" // nobody: what happened to a job, or to a budget
	// PersonPrefix begins the actor of somebody whom an OpenID Connect provider vouches for. No id
	// of an API key has a colon.
	PersonPrefix = "person:"
)

type actorKey struct{}

// WithActor returns a context that says who acts: the id of an API key, or a person.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// HasActor reports whether the context has an actor. Without one the program itself acts.
func HasActor(ctx context.Context) bool { return ctx.Value(actorKey{}) != nil }

// ActorOf returns the actor of the context, LocalActor if it has none.
func ActorOf(ctx context.Context) string {
	if actor, ok := ctx.Value(actorKey{}).(string); ok && actor != "" {
		return actor
	}
	return LocalActor
}

// AuditFilter selects entries. Zero fields select everything.
type AuditFilter struct {
	Tenant        string
	Actor         string
	Action        string
	CreatedAfter  *time.Time // that time included
	CreatedBefore *time.Time
}
