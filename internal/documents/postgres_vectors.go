package documents

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/vector"
	"github.com/jackc/pgx/v5/pgconn"
)

// With pgvector, PostgreSQL keeps the vectors of live contents in HNSW indexes, one for each
// dimension. Adding a row costs milliseconds, too much for a transaction that delays all others.
// So one process copies the vectors afterwards, revision by revision, and a counter says how far
// it is.
//
// An index is built once there are enough vectors and all are copied: building it costs a
// fraction of adding them one by one. A search asks the table for vectors that are in it, and
// uses the codes of the others. Without pgvector the counter does not exist and a search uses all
// codes.

const (
	// indexedCounter is the last revision that went live whose vectors are in the indexes.
	indexedCounter = "live_indexed"
	// minPgvector can continue a search if too few of the vectors found are the tenant's. It has
	// halfvec too, whose indexes take up to maxHalfvec dimensions.
	minPgvector = "0.8"
	maxHalfvec  = 4000
	// indexingLock is held by the process that copies.
	indexingLock = 1180844410
	// indexedAtOnce is how many vectors one statement copies.
	indexedAtOnce = 100
	// indexFrom is how many vectors of a tenant make an index worthwhile. Fewer are compared one
	// by one.
	indexFrom = 1000
	// indexMemory is the least memory for building an index: a graph that does not fit takes many
	// times longer.
	indexMemory = "256MB"
)

// VectorSupport says how a database searches for vectors.
type VectorSupport struct {
	Pgvector string // version that is used; "": none
	Missing  string // why there is none, on PostgreSQL
	schema   string
}

// PrepareVectors uses pgvector if the database has it, and reports whether it does.
func (s *Store) PrepareVectors(ctx context.Context) (v VectorSupport, err error) {
	if s.Searchers == nil {
		return v, nil
	}
	err = s.Search(ctx, func(c driver.Conn) error {
		if v, err = pgvector(c); err != nil || v.Pgvector == "" {
			return err
		}
		if there, err := c.Prep("SELECT 1 FROM pg_class WHERE oid = to_regclass('chunk_halfvecs')").One(func(driver.Row) {}); err != nil || there {
			return err
		}
		return createVectors(c, v)
	})
	if err == nil {
		s.vectors.Store(&v)
	}
	return v, err
}

// createVectors creates the table, empty. A copied database may have brought an older one.
func createVectors(c driver.Conn, v VectorSupport) error {
	if err := c.Prep("INSERT INTO counters (name, value) VALUES (?, 0) ON CONFLICT (name) DO UPDATE SET value = 0").Text(indexedCounter).Exec(); err != nil {
		return err
	}
	if err := c.Prep(fmt.Sprintf(`CREATE TABLE IF NOT EXISTS chunk_halfvecs (chunk BIGINT PRIMARY KEY REFERENCES chunk_vectors (chunk) ON DELETE CASCADE,
		tenant BIGINT NOT NULL, dimensions BIGINT NOT NULL, embedding %s.halfvec NOT NULL)`, v.schema)).Exec(); err != nil {
		return err
	}
	return c.Prep("CREATE INDEX IF NOT EXISTS chunk_halfvecs_tenant ON chunk_halfvecs (tenant, dimensions)").Exec()
}

// pgvector finds the extension, or creates it in the database if the server has it.
func pgvector(c driver.Conn) (v VectorSupport, err error) {
	const installed = "SELECT e.extversion, quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
	scan := func() (bool, error) {
		return c.Prep(installed).One(func(r driver.Row) { v.Pgvector, v.schema = r.Text(0), r.Text(1) })
	}
	found, err := scan()
	if err == nil && !found {
		if found, err = c.Prep("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").One(func(driver.Row) {}); err != nil || !found {
			v.Missing = "the database server does not have the extension pgvector"
			return v, err
		}
		if err := c.Prep("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public").Exec(); err != nil {
			v.Missing = "this database user may not create the extension vector; have an administrator do it: CREATE EXTENSION vector"
			var refused *pgconn.PgError
			if errors.As(err, &refused) && (refused.Code == "42501" || refused.Code == "3F000") {
				return v, nil
			}
			return v, err
		}
		_, err = scan()
	}
	if err == nil && olderThan(v.Pgvector, minPgvector) {
		v.Missing = "the database has pgvector " + v.Pgvector + ", and " + minPgvector + " or newer is needed"
		v.Pgvector = ""
	}
	return v, err
}

// olderThan compares versions by their first two numbers.
func olderThan(version, other string) bool {
	numbers := func(s string) (major, minor int) {
		first, rest, _ := strings.Cut(s, ".")
		second, _, _ := strings.Cut(rest, ".")
		major, _ = strconv.Atoi(first)
		minor, _ = strconv.Atoi(second)
		return major, minor
	}
	major, minor := numbers(version)
	otherMajor, otherMinor := numbers(other)
	return major < otherMajor || major == otherMajor && minor < otherMinor
}

// IndexVectors copies vectors of live revisions into pgvector's indexes, some at a time, and
// returns whether there may be more. Only one process does so at a time.
func (s *Store) IndexVectors(ctx context.Context) (more bool, err error) {
	v := s.vectors.Load()
	if v == nil || v.Pgvector == "" {
		return false, nil
	}
	err = s.Search(ctx, func(c driver.Conn) (err error) {
		more = false
		mine := false
		if _, err := c.Prep("SELECT pg_try_advisory_lock(" + strconv.Itoa(indexingLock) + ")").One(func(r driver.Row) { mine = r.Int(0) != 0 }); err != nil || !mine {
			return err
		}
		defer func() {
			_, unlockErr := c.Prep("SELECT pg_advisory_unlock(" + strconv.Itoa(indexingLock) + ")").One(func(driver.Row) {})
			err = errors.Join(err, unlockErr)
		}()
		if more, err = indexNext(c, v); err != nil || more {
			return err
		}
		if err := dropIndexes(ctx, c); err != nil {
			return err
		}
		return makeIndexes(ctx, c, v)
	})
	return more, err
}

// indexNext copies the vectors of the next revision.
func indexNext(c driver.Conn, v *VectorSupport) (bool, error) {
	var no, live, tenant int64
	found, err := c.Prep("SELECT no, live, tenant FROM document_revisions WHERE live > (SELECT value FROM counters WHERE name = ?) ORDER BY live LIMIT 1").
		Text(indexedCounter).One(func(r driver.Row) { no, live, tenant = r.Int(0), r.Int(1), r.Int(2) })
	if err != nil || !found {
		return false, err
	}
	for after := int64(0); ; {
		var chunks []int64
		var vectors []string
		dimensions := 0
		err := c.Prep(`SELECT k.chunk, v.vector FROM chunk_codes k JOIN chunk_vectors v ON v.chunk = k.chunk
			WHERE k.revision = ? AND k.chunk > ? ORDER BY k.chunk LIMIT ? + 0`).Int(no).Int(after).Int(indexedAtOnce).Each(func(r driver.Row) error {
			numbers := vector.FromBytes(r.Blob(1))
			chunks, vectors, dimensions, after = append(chunks, r.Int(0)), append(vectors, vectorText(numbers)), len(numbers), r.Int(0)
			return nil
		})
		if err != nil {
			return false, err
		}
		if len(chunks) == 0 {
			break
		}
		if err := indexVectors(c, v, tenant, dimensions, chunks, vectors); err != nil {
			return false, err
		}
	}
	return true, c.Prep("UPDATE counters SET value = ? WHERE name = ?").Int(live).Text(indexedCounter).Exec()
}

func indexVectors(c driver.Conn, v *VectorSupport, tenant int64, dimensions int, chunks []int64, vectors []string) error {
	// Vectors of deleted chunks are left out. A deletion under way is not waited for.
	return c.Prep(fmt.Sprintf(`INSERT INTO chunk_halfvecs (chunk, tenant, dimensions, embedding)
		SELECT x.chunk, ?, ?, CAST(x.v AS %s.halfvec) FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) AS x(chunk, v)
		WHERE EXISTS (SELECT 1 FROM chunk_vectors o WHERE o.chunk = x.chunk FOR KEY SHARE SKIP LOCKED) ON CONFLICT (chunk) DO NOTHING`, v.schema)).
		Int(tenant).Int(int64(dimensions)).Text(driver.ArrayOf(chunks)).Text(driver.ArrayOfTexts(vectors)).Exec()
}

// sqlUnindexed finds the dimensions that need an index and have none, or one whose building was
// interrupted.
const sqlUnindexed = `
SELECT DISTINCT i.dimensions FROM document_indexes i WHERE i.dimensions <= ?1
AND NOT EXISTS (SELECT 1 FROM pg_index x WHERE x.indexrelid = to_regclass('chunk_halfvecs_' || CAST(i.dimensions AS TEXT)) AND x.indisvalid)
AND (SELECT count(*) FROM (SELECT 1 FROM chunk_halfvecs h WHERE h.tenant = i.tenant AND h.dimensions = i.dimensions LIMIT ?2 + 0) AS few) = ?2`

// sqlUnused finds the indexes of dimensions that no tenant's vectors have.
const sqlUnused = `
SELECT c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
WHERE x.indrelid = to_regclass('chunk_halfvecs') AND c.relname ~ '^chunk_halfvecs_[0-9]+$'
AND NOT EXISTS (SELECT 1 FROM document_indexes i WHERE c.relname = 'chunk_halfvecs_' || CAST(i.dimensions AS TEXT))`

// dropIndexes drops the indexes of dimensions that no tenant uses any more. Rows still in them
// are being removed.
func dropIndexes(ctx context.Context, c driver.Conn) error {
	var unused []string
	if err := c.Prep(sqlUnused).Each(func(r driver.Row) error { unused = append(unused, r.Text(0)); return nil }); err != nil || len(unused) == 0 {
		return err
	}
	pg := c.Driver.(*postgres.Conn)
	return pg.WithoutTimeout(ctx, func() (err error) {
		err = pg.ExecSimple("SET statement_timeout = 0")
		for _, name := range unused {
			if err == nil {
				err = pg.ExecSimple("DROP INDEX CONCURRENTLY IF EXISTS " + name)
			}
		}
		return errors.Join(err, pg.ExecSimple("RESET statement_timeout"))
	})
}

// makeIndexes builds the indexes that are due. It blocks nobody.
func makeIndexes(ctx context.Context, c driver.Conn, v *VectorSupport) error {
	var due []int64
	err := c.Prep(sqlUnindexed).Int(maxHalfvec).Int(indexFrom).Each(func(r driver.Row) error { due = append(due, r.Int(0)); return nil })
	if err != nil || len(due) == 0 {
		return err
	}
	pg := c.Driver.(*postgres.Conn)
	return pg.WithoutTimeout(ctx, func() (err error) {
		const less = "pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes('" + indexMemory + "')"
		err = pg.ExecSimple("SET statement_timeout = 0; SELECT set_config('maintenance_work_mem', '" + indexMemory + "', false) WHERE " + less)
		for i := 0; i < len(due) && err == nil; i++ {
			err = makeIndex(pg, v, due[i])
			// Parallel workers build it in shared memory, of which a container usually has 64 MB.
			// A single one has memory of its own.
			if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == postgres.NoSpace {
				if err = pg.ExecSimple("SET max_parallel_maintenance_workers = 0"); err == nil {
					err = makeIndex(pg, v, due[i])
				}
			}
		}
		return errors.Join(err, pg.ExecSimple("RESET max_parallel_maintenance_workers; RESET maintenance_work_mem; RESET statement_timeout"))
	})
}

func makeIndex(pg *postgres.Conn, v *VectorSupport, dimensions int64) error {
	if err := pg.ExecSimple(fmt.Sprintf("DROP INDEX CONCURRENTLY IF EXISTS chunk_halfvecs_%d", dimensions)); err != nil {
		return err
	}
	return pg.ExecSimple(fmt.Sprintf("CREATE INDEX CONCURRENTLY chunk_halfvecs_%[2]d ON chunk_halfvecs USING hnsw ((embedding::%[1]s.halfvec(%[2]d)) %[1]s.halfvec_cosine_ops) WHERE dimensions = %[2]d",
		v.schema, dimensions))
}

func vectorText(v []float32) string {
	b := make([]byte, 0, 2+12*len(v))
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return string(append(b, ']'))
}

// IndexedNearest returns up to n chunks of the tenant that pgvector's index finds nearest to a
// vector. It also returns the number of the last revision in the index; 0: there is no index.
func (s *Store) IndexedNearest(ctx context.Context, tenant int64, unit []float32, n int) (chunks []int64, indexed int64, err error) {
	v := s.vectors.Load()
	if v == nil || v.Pgvector == "" {
		return nil, 0, nil
	}
	err = s.Search(ctx, func(c driver.Conn) error {
		chunks, indexed = nil, 0
		// The number is read first. A revision that is copied after that is searched twice rather
		// than never.
		if _, err := c.Prep("SELECT value FROM counters WHERE name = ?").Text(indexedCounter).One(func(r driver.Row) { indexed = r.Int(0) }); err != nil || indexed == 0 {
			return err
		}
		chunks, err = indexedNearest(c, v, tenant, unit, n)
		return err
	})
	return chunks, indexed, err
}

// indexedNearest searches the index. The index may give up before it has n chunks, if others'
// vectors are nearer or the tenant has fewer than n. Then all of the tenant's vectors are
// compared, which are few in either case.
func indexedNearest(c driver.Conn, v *VectorSupport, tenant int64, unit []float32, n int) (chunks []int64, err error) {
	column := "embedding"
	if len(unit) <= maxHalfvec { // the same type as in the index
		column = fmt.Sprintf("(embedding::%s.halfvec(%d))", v.schema, len(unit))
	}
	distance := fmt.Sprintf("%s OPERATOR(%s.<=>) CAST(?2 AS %s.halfvec)", column, v.schema, v.schema)
	for _, order := range []string{distance, "(" + distance + ") + 0"} { // no index serves the second
		chunks = nil
		err = c.Prep(fmt.Sprintf("SELECT chunk FROM chunk_halfvecs WHERE tenant = ?1 AND dimensions = %d ORDER BY %s LIMIT ?3 + 0", len(unit), order)).
			Int(tenant).Text(vectorText(unit)).Int(int64(n)).Each(func(r driver.Row) error { chunks = append(chunks, r.Int(0)); return nil })
		if err != nil || len(chunks) == n {
			break
		}
	}
	return chunks, err
}
