package documents

import (
	"encoding/hex"
	"encoding/json"

	"github.com/forebayhq/forebay"
)

// view returns a document as its tenant sees it.
func view(row DocumentRow) forebay.Document {
	rev := row.Latest
	d := forebay.Document{
		ID: row.ID, Status: forebay.DocumentProcessing, Searchable: row.Searchable, Revision: rev.ID, ContentHash: "sha256:" + hex.EncodeToString(rev.Hash),
		ContentType: rev.MediaType, Name: rev.Name, SizeBytes: rev.Size, Metadata: map[string]string{}, CreatedAt: row.CreatedAt, UploadedAt: rev.UploadedAt,
		ReadyAt: rev.ReadyAt, Title: rev.Title, Language: rev.Language, Entities: []forebay.DocumentEntity{}, TextBytes: rev.TextBytes, Pages: rev.Pages,
		Tokens: rev.Tokens, Chunks: rev.Chunks,
		Tagged: forebay.Tagged{ETag: revisionETag(rev.ID)},
		Links:  forebay.DocumentLinks{Self: "/v1/documents/" + row.ID, Retry: "/v1/documents/" + row.ID + "/retry"},
	}
	decodeInto(rev.Metadata, &d.Metadata)
	decodeInto(rev.Entities, &d.Entities)
	switch {
	case rev.Live:
		d.Status = forebay.DocumentReady
	case len(row.Failed) > 0:
		d.Status = forebay.DocumentFailed
	}
	d.Branches.Split = branch(rev.Split, true, 1, row.Failed, BranchSplit)
	d.Branches.Embedding = branch(rev.Split && rev.Embedded >= rev.Chunks, rev.Split, rev.Chunks, row.Failed, BranchEmbedding)
	d.Branches.Embedding.Done = rev.Embedded
	d.Branches.Metadata = branch(rev.Described, rev.Split, 1, row.Failed, BranchMetadata)
	return d
}

// decodeInto reads JSON that this package wrote. Without any it leaves the value as it is.
func decodeInto(b []byte, into any) {
	if len(b) > 0 {
		_ = json.Unmarshal(b, into)
	}
}

const maxShownFailures = 10

func branch(done, begun bool, total int64, failed []FailedJob, name string) forebay.DocumentBranch {
	b := forebay.DocumentBranch{Status: forebay.BranchWaiting, Total: total, Errors: []forebay.DocumentFailure{}}
	for _, f := range failed {
		if f.Branch == name && len(b.Errors) < maxShownFailures {
			b.Errors = append(b.Errors, forebay.DocumentFailure{JobID: f.ID, Code: f.Code, Message: string(f.Message)})
		}
	}
	switch {
	case done:
		b.Status, b.Done = forebay.BranchDone, total
	case len(b.Errors) > 0:
		b.Status = forebay.BranchFailed
	case begun:
		b.Status = forebay.BranchRunning
	}
	return b
}
