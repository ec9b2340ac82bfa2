package documents

import (
	"context"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// ofLive limits a statement to chunks that searches of a tenant find.
const ofLive = " JOIN chunks c ON c.no = x.no JOIN document_revisions r ON r.no = c.revision WHERE r.tenant = ?2 AND r.live IS NOT NULL"

// Live returns those of the chunks that searches of the tenant find.
func (s *Store) Live(ctx context.Context, tenant int64, chunks []int64) (live map[int64]bool, err error) {
	err = s.Search(ctx, func(c driver.Conn) error {
		live, err = liveChunks(c, tenant, chunks)
		return err
	})
	return live, err
}

func liveChunks(c driver.Conn, tenant int64, chunks []int64) (map[int64]bool, error) {
	live := make(map[int64]bool, len(chunks))
	return live, driver.EachOf(c, "SELECT x.no", ofLive, chunks, func(r driver.Row) error { live[r.Int(0)] = true; return nil }, tenant)
}

// Vectors returns the vectors of chunks, whether they are live or not.
func (s *Store) Vectors(ctx context.Context, chunks []int64) (vectors map[int64][]byte, err error) {
	err = s.Search(ctx, func(c driver.Conn) error {
		vectors = make(map[int64][]byte, len(chunks))
		return driver.EachOf(c, "SELECT v.chunk, v.vector", " JOIN chunk_vectors v ON v.chunk = x.no", chunks,
			func(r driver.Row) error { vectors[r.Int(0)] = r.Blob(1); return nil })
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
func (s *Store) Passages(ctx context.Context, tenant int64, chunks []int64) (passages map[int64]Passage, err error) {
	const columns = `SELECT c.no, c.number, c.start_byte, c.end_byte, c.start_char, c.end_char, c.page, c.tokens, c.headings, c.text,
		r.id, r.title, r.name, r.metadata, (SELECT d.id FROM documents d WHERE d.no = r.document)`
	err = s.Search(ctx, func(c driver.Conn) error {
		passages = make(map[int64]Passage, len(chunks))
		return driver.EachOf(c, columns, ofLive, chunks, func(r driver.Row) error {
			passages[r.Int(0)] = Passage{
				Chunk: NewChunk{Number: int(r.Int(1)), StartByte: int(r.Int(2)), EndByte: int(r.Int(3)), StartChar: int(r.Int(4)), EndChar: int(r.Int(5)),
					Page: int(r.Int(6)), Tokens: int(r.Int(7)), Headings: r.Blob(8), Text: r.Text(9)},
				Revision: Revision{ID: r.Text(10), Title: r.Text(11), Name: r.Text(12), Metadata: r.Blob(13)}, Document: r.Text(14),
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

// codesPage is how many codes are read at once, more than a revision has chunks.
const codesPage = 20_000

// Codes returns codes of revisions that went live after that number, whole revisions in order.
// There may be more unless none are returned.
func (s *Store) Codes(ctx context.Context, tenant, after int64) (codes []LiveCode, err error) {
	err = s.Search(ctx, func(c driver.Conn) error {
		codes = codes[:0]
		err := c.Prep(`SELECT r.live, c.chunk, c.code FROM document_revisions r CROSS JOIN chunk_codes c ON c.revision = r.no
			WHERE r.tenant = ? AND r.live > ? ORDER BY r.live LIMIT ? + 0`).Int(tenant).Int(after).Int(codesPage).
			Each(func(r driver.Row) error { codes = append(codes, LiveCode{r.Int(0), r.Int(1), r.Blob(2)}); return nil })
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

// LiveNumbers returns the numbers under which the live contents of a tenant went live.
func (s *Store) LiveNumbers(ctx context.Context, tenant int64) (live map[int64]bool, err error) {
	err = s.Search(ctx, func(c driver.Conn) error {
		live = map[int64]bool{}
		return c.Prep("SELECT live FROM document_revisions WHERE tenant = ? AND live IS NOT NULL").Int(tenant).
			Each(func(r driver.Row) error { live[r.Int(0)] = true; return nil })
	})
	return live, err
}

// Dimensions returns the dimension of a tenant's vectors; 0: it has none.
func (s *Store) Dimensions(ctx context.Context, tenant int64) (dimensions int, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(`SELECT dimensions FROM document_indexes WHERE tenant = ?1
			AND EXISTS (SELECT 1 FROM document_revisions WHERE tenant = ?1 AND live IS NOT NULL)`).Int(tenant).One(func(r driver.Row) { dimensions = int(r.Int(0)) })
		return err
	})
	return dimensions, err
}
