package store

import "context"

// ofLive is for chunks that searches of a tenant find.
const ofLive = " JOIN chunks c ON c.no = x.no JOIN document_revisions r ON r.no = c.revision WHERE r.tenant = ?2 AND r.live IS NOT NULL"

// Live returns those of the chunks that searches of the tenant find.
func (s *DocumentStore) Live(ctx context.Context, tenant int64, chunks []int64) (live map[int64]bool, err error) {
	err = s.search(ctx, func(c conn) error {
		live, err = liveChunks(c, tenant, chunks)
		return err
	})
	return live, err
}

func liveChunks(c conn, tenant int64, chunks []int64) (map[int64]bool, error) {
	live := make(map[int64]bool, len(chunks))
	return live, eachOf(c, "SELECT x.no", ofLive, chunks, func(r row) error { live[r.int(0)] = true; return nil }, tenant)
}

// Vectors returns the vectors of chunks, whether they are live or not.
func (s *DocumentStore) Vectors(ctx context.Context, chunks []int64) (vectors map[int64][]byte, err error) {
	err = s.search(ctx, func(c conn) error {
		vectors = make(map[int64][]byte, len(chunks))
		return eachOf(c, "SELECT v.chunk, v.vector", " JOIN chunk_vectors v ON v.chunk = x.no", chunks,
			func(r row) error { vectors[r.int(0)] = r.blob(1); return nil })
	})
	return vectors, err
}

// Passage is a chunk as a search shows it.
type Passage struct {
	Chunk    NewChunk
	Document string
	Revision Revision // its ID, Title, Name and Metadata
}

// Passages returns those of the chunks that searches of the tenant find.
func (s *DocumentStore) Passages(ctx context.Context, tenant int64, chunks []int64) (passages map[int64]Passage, err error) {
	const columns = `SELECT c.no, c.number, c.start_byte, c.end_byte, c.start_char, c.end_char, c.page, c.tokens, c.headings, c.text,
		r.id, r.title, r.name, r.metadata, (SELECT d.id FROM documents d WHERE d.no = r.document)`
	err = s.search(ctx, func(c conn) error {
		passages = make(map[int64]Passage, len(chunks))
		return eachOf(c, columns, ofLive, chunks, func(r row) error {
			passages[r.int(0)] = Passage{
				Chunk: NewChunk{Number: int(r.int(1)), StartByte: int(r.int(2)), EndByte: int(r.int(3)), StartChar: int(r.int(4)), EndChar: int(r.int(5)),
					Page: int(r.int(6)), Tokens: int(r.int(7)), Headings: r.blob(8), Text: r.text(9)},
				Revision: Revision{ID: r.text(10), Title: r.text(11), Name: r.text(12), Metadata: r.blob(13)}, Document: r.text(14),
			}
			return nil
		}, tenant)
	})
	return passages, err
}

// LiveCode is the code of a chunk of a revision that went live under that number.
type LiveCode struct {
	Live  int64
	Chunk int64
	Code  []byte
}

// codesPage is how many codes are read at once. It is more than a revision has chunks.
const codesPage = 20_000

// Codes returns codes of what went live after that number, whole revisions in order. There may be more as
// long as there are any.
func (s *DocumentStore) Codes(ctx context.Context, tenant, after int64) (codes []LiveCode, err error) {
	err = s.search(ctx, func(c conn) error {
		codes = codes[:0]
		err := c.prep(`SELECT r.live, c.chunk, c.code FROM document_revisions r CROSS JOIN chunk_codes c ON c.revision = r.no
			WHERE r.tenant = ? AND r.live > ? ORDER BY r.live LIMIT ? + 0`).int(tenant).int(after).int(codesPage).
			each(func(r row) error { codes = append(codes, LiveCode{r.int(0), r.int(1), r.blob(2)}); return nil })
		if n := len(codes); n == codesPage { // the last one may not be whole
			last := codes[n-1].Live
			for n > 0 && codes[n-1].Live == last {
				n--
			}
			codes = codes[:n]
		}
		return err
	})
	return codes, err
}

// LiveNumbers returns the numbers under which what searches of the tenant find went live.
func (s *DocumentStore) LiveNumbers(ctx context.Context, tenant int64) (live map[int64]bool, err error) {
	err = s.search(ctx, func(c conn) error {
		live = map[int64]bool{}
		return c.prep("SELECT live FROM document_revisions WHERE tenant = ? AND live IS NOT NULL").int(tenant).
			each(func(r row) error { live[r.int(0)] = true; return nil })
	})
	return live, err
}

// Dimensions returns those of a tenant's vectors; 0: it has none that searches could find.
func (s *DocumentStore) Dimensions(ctx context.Context, tenant int64) (dimensions int, err error) {
	err = s.read(ctx, func(c conn) error {
		_, err := c.prep(`SELECT dimensions FROM document_indexes WHERE tenant = ?1
			AND EXISTS (SELECT 1 FROM document_revisions WHERE tenant = ?1 AND live IS NOT NULL)`).int(tenant).one(func(r row) { dimensions = int(r.int(0)) })
		return err
	})
	return dimensions, err
}
