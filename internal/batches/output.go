package batches

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/files"
)

// Usage is what the answers of a batch say that they used, as OpenAI's schema BatchUsage has it.
type Usage struct {
	Input        int64 `json:"input_tokens"`
	InputDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// add adds the usage of one answer, of any endpoint.
func (u *Usage) add(usage gjson.Result) {
	first := func(paths ...string) int64 {
		for _, path := range paths {
			if n := usage.Get(path); n.Type == gjson.Number && n.Int() > 0 {
				return n.Int()
			}
		}
		return 0
	}
	input, output := first("input_tokens", "prompt_tokens"), first("output_tokens", "completion_tokens")
	u.Input, u.Output, u.Total = u.Input+input, u.Output+output, u.Total+input+output
	u.InputDetails.Cached += first("input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens")
	u.OutputDetails.Reasoning += first("output_tokens_details.reasoning_tokens", "completion_tokens_details.reasoning_tokens")
}

// endedRow is a line that became a job, with what came of that.
type endedRow struct {
	line     int64
	customID string
	outcome  int64
	jobID    string // "": it was purged
	result   []byte
	blob     string
	class    forebay.ErrorClass
	code     string
	message  string
}

const sqlEnded = `
SELECT l.line, l.custom_id, l.outcome, j.id, o.result, o.result_blob, o.error_class, o.error_code, o.error_message
FROM batch_lines l LEFT JOIN jobs j ON j.seq = l.seq LEFT JOIN outcomes o ON o.seq = l.seq
WHERE l.batch = ? AND l.line > ? ORDER BY l.line LIMIT ? + 0`

// rowsAtOnce is how many results are in memory, each of up to forebay.InlineBytes.
const rowsAtOnce = 64

func (s *Store) endedLines(ctx context.Context, b *Batch, after int64) (rows []endedRow, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		rows = nil
		return c.Prep(sqlEnded).Int(b.No).Int(after).Int(rowsAtOnce).Each(func(r driver.Row) error {
			rows = append(rows, endedRow{r.Int(0), r.Text(1), r.Int(2), r.Text(3), r.Blob(4), r.Text(5), forebay.ErrorClass(r.Text(6)), r.Text(7), string(r.Blob(8))})
			return nil
		})
	})
	return rows, err
}

// outputFile writes one file of a batch to blob storage as its lines come. It begins with the
// first line.
type outputFile struct {
	service *Service
	ctx     context.Context
	file    files.File
	pipe    *io.PipeWriter
	w       *bufio.Writer
	ended   chan error // of the upload
}

func (o *outputFile) begin() {
	if o.pipe != nil {
		return
	}
	r, w := io.Pipe()
	o.pipe, o.w, o.ended = w, bufio.NewWriterSize(w, 64<<10), make(chan error, 1)
	go func() {
		size, err := o.service.Blobs.PutStream(o.ctx, o.file.Blob, r, 1<<50)
		o.file.Size = size
		r.CloseWithError(errors.Join(io.ErrClosedPipe, err))
		o.ended <- err
	}()
}

// end ends the upload. A file without a line has no id then.
func (o *outputFile) end(err error) error {
	if o.pipe == nil {
		o.file = files.File{}
		return err
	}
	if err == nil {
		err = o.w.Flush()
	}
	o.pipe.CloseWithError(err) // nil is the end of the file
	if put := <-o.ended; err == nil {
		err = put
	}
	return err
}

func (s *Service) newOutput(ctx context.Context, b *Batch, name string) *outputFile {
	f := files.File{ID: files.NewID(), Tenant: b.Tenant, Purpose: files.PurposeOutput, Name: b.ID + name}
	f.Blob = blob.Key(b.Tenant, f.ID, "content")
	return &outputFile{service: s, ctx: ctx, file: f}
}

// finish writes the output of a batch whose lines have all ended, and ends it.
func (s *Service) finish(ctx context.Context, b *Batch) error {
	w := writing{Service: s, batch: b, answers: s.newOutput(ctx, b, "_output.jsonl"), errors: s.newOutput(ctx, b, "_error.jsonl")}
	err := w.all(ctx)
	err = w.answers.end(err)
	err = w.errors.end(err)
	out := Output{Answers: w.answers.file, Errors: w.errors.file, Lost: w.lost}
	if err == nil && b.InProgressAt != nil {
		out.Usage, err = json.Marshal(w.usage)
	}
	if err == nil {
		err = s.Store.End(ctx, b, out)
	}
	if errors.Is(err, errLeaseLost) { // else it may be committed all the same; the sweep removes what is not
		for _, f := range []files.File{out.Answers, out.Errors} {
			if f.ID != "" {
				_ = s.Blobs.Delete(context.WithoutCancel(ctx), f.Blob)
			}
		}
	}
	return err
}

// writing writes the output of a batch.
type writing struct {
	*Service
	batch           *Batch
	answers, errors *outputFile
	usage           Usage
	lost            int64 // answers that storage has lost
}

func (w *writing) all(ctx context.Context) error {
	after := int64(0)
	for {
		rows, err := w.Store.endedLines(ctx, w.batch, after)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			if err := w.row(ctx, &rows[i]); err != nil {
				return err
			}
		}
		after = rows[len(rows)-1].line
	}
	if w.batch.Fed == w.batch.Total {
		return nil
	}
	return w.unfed(ctx, after)
}

// unfed writes that the lines which never became jobs did not run. If storage has lost the input
// nobody knows them, and the batch ends without them.
func (w *writing) unfed(ctx context.Context, after int64) error {
	content, err := w.open(ctx, w.batch, w.batch.FedBytes)
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		w.Logger.Warn("the input of a batch is gone; its output lacks the lines that did not run", slog.String("batch", w.batch.ID))
		return nil
	}
	if err != nil {
		return err
	}
	defer content.Close()
	r := newReader(content, w.MaxLineBytes, after, w.batch.FedBytes)
	for {
		if err := r.next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		q, _ := r.parse(w.batch.Endpoint) // it was right when it was validated
		if err := w.notRun(q.customID, w.batch.ID+"_"+number(r.no)); err != nil {
			return err
		}
	}
}

// object is a line of an output without its response.
type object struct {
	ID       string          `json:"id"`
	CustomID string          `json:"custom_id"`
	Response json.RawMessage `json:"response"`
	Error    *lineFailure    `json:"error"`
}

type lineFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// lineID is the id of a line of output: it is unique.
func lineID(of string) string { return "batch_req_" + of[strings.IndexByte(of, '_')+1:] }

func (w *writing) row(ctx context.Context, row *endedRow) error {
	id := row.jobID
	if id == "" {
		id = w.batch.ID + "_" + number(row.line)
	}
	switch {
	case row.outcome == outcomeNotRun || row.outcome == outcomeNone:
		return w.notRun(row.customID, id)
	case row.blob != "":
		result, err := w.Blobs.ReadAll(ctx, row.blob, maxResult)
		if err != nil && forebay.CodeOf(err) != forebay.CodeNotFound {
			return err
		}
		row.result = result
	}
	if row.outcome == outcomeAnswer && len(row.result) == 0 { // the other lines have theirs
		w.lost++
		row.outcome, row.message = outcomeError, "the result is gone from storage"
	}
	to := w.answers
	if row.outcome == outcomeError {
		to = w.errors
	}
	if len(row.result) == 0 || string(row.result) == "null" { // it failed for good without an answer
		row.result = failure(row, id)
	} else {
		w.usage.add(gjson.GetBytes(row.result, "body.usage"))
	}
	return to.line(object{ID: lineID(id), CustomID: row.customID, Response: row.result})
}

// maxResult bounds a result that is read into memory: more than any call may answer.
const maxResult = 1 << 30

// failure is the response of a line whose calls have all failed.
func failure(row *endedRow, id string) []byte {
	status, kind := 500, "server_error"
	if row.class == forebay.ClassThrottled {
		status, kind = 429, "rate_limit_error"
	}
	message := row.message
	if message == "" {
		message = "the request has failed"
	}
	b, err := json.Marshal(map[string]any{
		"status_code": status, "request_id": "req_" + id[strings.IndexByte(id, '_')+1:],
		"body": map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": row.code}},
	})
	if err != nil {
		panic(err) // strings and a number: cannot happen
	}
	return b
}

// notRun writes a line that never ran.
func (w *writing) notRun(customID, id string) error {
	f := lineFailure{Code: "batch_cancelled", Message: "This request was not executed because the batch was cancelled."}
	switch w.batch.EndsAs {
	case Expired:
		f = lineFailure{Code: "batch_expired", Message: "This request could not be executed before the completion window expired."}
	case Completed:
		f = lineFailure{Code: "request_cancelled", Message: "This request was cancelled by itself."}
	}
	return w.errors.line(object{ID: lineID(id), CustomID: customID, Error: &f})
}

// line writes a line.
func (o *outputFile) line(v object) error {
	o.begin()
	response := v.Response
	v.Response = nil
	head, err := forebay.EncodeJSON(v)
	if err != nil {
		return err
	}
	if response == nil {
		_, err = o.w.Write(append(head, '\n'))
		return err
	}
	// The response is JSON on one line already. It goes in as it is.
	before, after, _ := strings.Cut(string(head), `"response":null`)
	for _, part := range [][]byte{[]byte(before + `"response":`), response, []byte(after + "\n")} {
		if _, err := o.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
