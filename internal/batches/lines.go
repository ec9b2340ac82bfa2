package batches

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// LineError is what is wrong with a line, or with the whole input. The codes are OpenAI's.
type LineError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    int64   `json:"line,omitempty"` // from 1; 0: the whole input
}

// Codes of errors.
const (
	codeInvalidLine   = "invalid_json_line"
	codeInvalid       = "invalid_request"
	codeDuplicate     = "duplicate_custom_id"
	codeURL           = "url_mismatch"
	codeModels        = "mismatched_model"
	codeNoModel       = "model_not_found"
	codeEmpty         = "empty_file"
	codeTooMany       = "too_many_tasks"
	codeTooManyInputs = "token_limit_exceeded"
)

// Limits of inputs. They are OpenAI's.
const (
	DefaultMaxLines   = 50_000
	maxInputs         = 50_000 // of embeddings, over all lines
	maxErrors         = 50     // that a batch shows
	maxCustomIDBytes  = 512
	maxMessageSnippet = 100
)

// reader reads the lines of an input. It holds one of them, of at most max bytes.
type reader struct {
	r    *bufio.Reader
	max  int64
	line []byte // valid until the next call of next
	long bool   // the line was longer, and is cut
	no   int64  // of the line, from 1
	end  int64  // of the input: bytes up to the end of the line
}

func newReader(r io.Reader, max, no, end int64) *reader {
	return &reader{r: bufio.NewReaderSize(r, 64<<10), max: max, no: no, end: end}
}

// next reads the next line that is not blank. It returns io.EOF after the last.
func (r *reader) next() error {
	for {
		if err := r.read(); err != nil {
			return err
		}
		if r.line = bytes.TrimSpace(r.line); len(r.line) > 0 || r.long {
			return nil
		}
	}
}

func (r *reader) read() error {
	r.line, r.long = r.line[:0], false
	r.no++
	for read := false; ; read = true {
		part, err := r.r.ReadSlice('\n')
		r.end += int64(len(part))
		if int64(len(r.line)+len(part)) > r.max+2 { // with the end of the line
			r.long = true
		} else {
			r.line = append(r.line, part...)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && (read || len(part) > 0):
			return nil
		default:
			return err
		}
	}
}

// request is what a line asks for.
type request struct {
	customID string
	model    string
	body     string // JSON
}

// parse reads a line. The error is a LineError without its line.
func (r *reader) parse(endpoint string) (q request, wrong *LineError) {
	bad := func(code, format string, args ...any) (request, *LineError) {
		return q, &LineError{Code: code, Message: fmt.Sprintf(format, args...), Line: r.no}
	}
	if r.long {
		return bad(codeInvalid, "This line has more than %d bytes.", r.max)
	}
	// Whatever is accepted here must be accepted as the input of a job later.
	if jsoncheck.Check("line", r.line) != nil || !gjson.ParseBytes(r.line).IsObject() {
		return bad(codeInvalidLine, "This line is not parseable as valid JSON.")
	}
	all := gjson.ParseBytes(r.line)
	id, method, url, body := all.Get("custom_id"), all.Get("method"), all.Get("url"), all.Get("body")
	switch {
	case id.Type != gjson.String || id.Str == "" || len(id.Str) > maxCustomIDBytes || strings.ContainsRune(id.Str, 0):
		return bad(codeInvalid, "'custom_id' must be a string of 1 to %d bytes.", maxCustomIDBytes)
	case method.Str != "POST":
		return bad(codeInvalid, "'method' must be POST.")
	case Endpoint(url.Str) != endpoint:
		return bad(codeURL, "The URL provided for this request does not match the batch endpoint %s.", endpoint)
	case !body.IsObject():
		return bad(codeInvalid, "'body' must be a JSON object.")
	case body.Get("stream").Bool():
		return bad(codeInvalid, "'body.stream' must not be true in a batch.")
	}
	model := body.Get("model")
	if model.Type != gjson.String || model.Str == "" {
		return bad(codeInvalid, "'body.model' is required.")
	}
	return request{id.Str, model.Str, body.Raw}, nil
}

// Endpoint is an endpoint as OpenAI writes it, such as /v1/chat/completions. Azure leaves the
// version out.
func Endpoint(url string) string {
	if url != "" && !strings.HasPrefix(url, "/v1/") {
		return "/v1/" + strings.TrimPrefix(url, "/")
	}
	return url
}

// validation checks an input line by line.
type validation struct {
	endpoint string
	serves   func(model string) (known, forwards bool)
	maxLines int64
	model    string // of the first line
	total    int64
	inputs   int64
	errors   []LineError
	seen     map[[16]byte]bool // hashes of custom ids
}

// run reads a whole input. The errors are in v.errors. An error that it returns is one of
// reading.
func (v *validation) run(r *reader) error {
	v.seen = map[[16]byte]bool{}
	for {
		err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if v.total++; v.total > v.maxLines {
			v.errors = []LineError{{Code: codeTooMany, Message: fmt.Sprintf("The file has more than %d requests.", v.maxLines)}}
			return nil
		}
		if wrong := v.check(r); wrong != nil {
			if v.errors = append(v.errors, *wrong); len(v.errors) == maxErrors {
				return nil
			}
		}
	}
	if v.total == 0 {
		v.errors = []LineError{{Code: codeEmpty, Message: "The file has no requests."}}
	}
	return nil
}

// check checks a line.
func (v *validation) check(r *reader) *LineError {
	q, wrong := r.parse(v.endpoint)
	if wrong != nil {
		return wrong
	}
	bad := func(code, format string, args ...any) *LineError {
		return &LineError{Code: code, Message: fmt.Sprintf(format, args...), Line: r.no}
	}
	hash := sha256.Sum256([]byte(q.customID))
	id := [16]byte(hash[:16])
	if v.seen[id] {
		return bad(codeDuplicate, "The custom_id '%s' of this line is that of another one.", cut(q.customID))
	}
	v.seen[id] = true
	if v.model == "" {
		v.model = q.model
		switch known, forwards := v.serves(q.model); {
		case !known:
			return bad(codeNoModel, "The model '%s' does not exist or you do not have access to it.", cut(q.model))
		case !forwards:
			return bad(codeInvalid, "No deployment of the model '%s' takes requests of OpenAI's API as they are.", cut(q.model))
		}
	}
	if q.model != v.model {
		return bad(codeModels, "The model '%s' of this line is not that of the lines before, '%s'.", cut(q.model), cut(v.model))
	}
	if v.endpoint == "/v1/embeddings" {
		n := int64(1)
		if input := gjson.Get(q.body, "input"); input.IsArray() && input.Get("0").Type != gjson.Number {
			n = input.Get("#").Int()
		}
		if v.inputs += n; v.inputs > maxInputs {
			return bad(codeTooManyInputs, "The lines up to this one have more than %d inputs.", maxInputs)
		}
	}
	return nil
}

func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxMessageSnippet)], "")
}
