package forebay

import "time"

// The events of documents go to the subscribers of the tenant's job events.
const (
	EventDocumentReady  EventType = "document.ready"  // searches find it, or its new content, from now on
	EventDocumentFailed EventType = "document.failed" // a part of its pipeline has failed; it can be retried
)

// DocumentStatus says how far a document has come.
type DocumentStatus string

// The statuses of a document. While new content of a document is processed, searches find the
// old.
const (
	DocumentProcessing DocumentStatus = "processing"
	DocumentReady      DocumentStatus = "ready"
	DocumentFailed     DocumentStatus = "failed"
)

// Limits on documents.
const (
	DefaultMaxDocumentBytes = 32 << 20
	MaxDocumentIDBytes      = 128
	MaxDocumentNameBytes    = 255
	MaxDocumentURLBytes     = 2048
	MaxSearchQueryBytes     = 8 << 10
	MaxSearchResults        = 100
	DefaultSearchResults    = 10
)

// ValidDocumentID reports whether s may be a document's id. An id has 1 to 128 of a-z A-Z 0-9 . _
// : - and begins with a letter or digit.
func ValidDocumentID(s string) bool {
	if s == "" || len(s) > MaxDocumentIDBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// NewDocument is a document to add, without its content.
type NewDocument struct {
	ID          string            `json:"id,omitempty" doc:"default: made from the content, so that the same content is the same document"`
	Name        string            `json:"name,omitempty" doc:"of the file"`
	ContentType string            `json:"content_type,omitempty" doc:"text/plain, text/markdown, text/html or application/pdf, with a charset; default: by the name, else by the content"`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"up to 64 entries, which come back with the document"`
}

// DocumentByURL is a document that the server fetches from a blob storage named in its
// configuration.
type DocumentByURL struct {
	NewDocument
	URL string `json:"url" doc:"below one of the configured documents.sources, such as s3://bucket/report.pdf"`
}

// Document is what a tenant has stored under one id.
type Document struct {
	ID          string            `json:"id"`
	Status      DocumentStatus    `json:"status" doc:"of the latest content"`
	Searchable  bool              `json:"searchable" doc:"searches find it: this content, or while that is not ready the content before"`
	Revision    string            `json:"revision" doc:"of the content: each upload of another one makes a new one"`
	ContentHash string            `json:"content_hash" doc:"sha256: and 64 hexadecimal digits"`
	ContentType string            `json:"content_type"`
	Name        string            `json:"name"`
	SizeBytes   int64             `json:"size_bytes"`
	Metadata    map[string]string `json:"metadata"`
	CreatedAt   time.Time         `json:"created_at"`
	UploadedAt  time.Time         `json:"uploaded_at" doc:"the latest content"`
	ReadyAt     *time.Time        `json:"ready_at"`

	Title     string           `json:"title"`
	Language  string           `json:"language" doc:"a BCP 47 tag; empty: not known"`
	Entities  []DocumentEntity `json:"entities"`
	TextBytes int64            `json:"text_bytes"`
	Pages     int64            `json:"pages" doc:"0: it has none"`
	Tokens    int64            `json:"tokens" doc:"of all chunks, overlaps included"`
	Chunks    int64            `json:"chunks"`

	Branches DocumentBranches `json:"branches"`
	Links    DocumentLinks    `json:"links"`
	Tagged
}

// DocumentEntity is something that a document mentions.
type DocumentEntity struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// DocumentBranches are the parts of the pipeline.
type DocumentBranches struct {
	Split     DocumentBranch `json:"split" doc:"content to chunks"`
	Embedding DocumentBranch `json:"embedding" doc:"chunks to vectors"`
	Metadata  DocumentBranch `json:"metadata" doc:"title, language, entities"`
}

// DocumentBranch is how far a part of the pipeline has come.
type DocumentBranch struct {
	Status string            `json:"status" doc:"waiting, running, done, failed"`
	Done   int64             `json:"done" doc:"of total"`
	Total  int64             `json:"total" doc:"chunks, else 1; 0: not known yet"`
	Errors []DocumentFailure `json:"errors" doc:"ten at most"`
}

// The statuses of branches.
const (
	BranchWaiting = "waiting"
	BranchRunning = "running"
	BranchDone    = "done"
	BranchFailed  = "failed"
)

// DocumentFailure is a job of a document that has failed.
type DocumentFailure struct {
	JobID   string `json:"job_id,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// DocumentLinks are the addresses that belong to a document.
type DocumentLinks struct {
	Self  string `json:"self"`
	Retry string `json:"retry"`
}

// DocumentEvent is an event of a document.
type DocumentEvent struct {
	Type        EventType `json:"type"`
	DocumentID  string    `json:"document_id"`
	Revision    string    `json:"revision"`
	ContentHash string    `json:"content_hash"`
	Title       string    `json:"title"`
	Chunks      int64     `json:"chunks"`
	ErrorCode   string    `json:"error_code,omitempty"`
	Timestamp   time.Time `json:"timestamp"`
}

// SearchMode says how a search ranks.
type SearchMode string

// The modes of a search.
const (
	SearchHybrid  SearchMode = "hybrid"  // both, in an order that their ranks make together
	SearchVector  SearchMode = "vector"  // by meaning
	SearchKeyword SearchMode = "keyword" // by words
)

// SearchRequest is a search over a tenant's documents.
type SearchRequest struct {
	Query  string     `json:"query,omitempty"`
	Vector []float32  `json:"vector,omitempty" maxItems:"8192" doc:"instead of embedding the query"`
	Mode   SearchMode `json:"mode,omitempty" doc:"hybrid (default), vector, keyword"`
	Limit  int        `json:"limit,omitempty" doc:"1 to 100; default 10"`
}

// SearchResults are the chunks that a search found, the best first.
type SearchResults struct {
	Mode  SearchMode     `json:"mode"`
	Items []SearchResult `json:"items"`
}

// SearchResult is a chunk of a document.
type SearchResult struct {
	DocumentID string            `json:"document_id"`
	Revision   string            `json:"revision"`
	Title      string            `json:"title"`
	Name       string            `json:"name"`
	Metadata   map[string]string `json:"metadata"`
	Score      float64           `json:"score" doc:"what the order goes by: of vector the cosine, of keyword a rank without a scale, of hybrid the sum of 1/(60 + rank) over both"`
	Cosine     *float64          `json:"cosine,omitempty"`
	Keyword    *float64          `json:"keyword,omitempty"`
	Text       string            `json:"text"`
	Position   ChunkPosition     `json:"position"`
}

// ChunkPosition says where a chunk is in the text of its document. For text and Markdown in UTF-8
// that is the file itself with line feeds as line ends.
type ChunkPosition struct {
	Chunk          int      `json:"chunk" doc:"its number, from 0"`
	StartByte      int64    `json:"start_byte"`
	EndByte        int64    `json:"end_byte"`
	StartCharacter int64    `json:"start_character"`
	EndCharacter   int64    `json:"end_character"`
	Page           int      `json:"page,omitempty" doc:"on which it begins, from 1"`
	Headings       []string `json:"headings" doc:"that it stands under, the highest first"`
}

// DocumentFilter selects documents; zero fields select everything.
type DocumentFilter struct {
	CreatedAfter  *time.Time // that time included
	CreatedBefore *time.Time
	Limit         int // 1 to MaxPageSize; 0 is DefaultPageSize
	Cursor        string
}
