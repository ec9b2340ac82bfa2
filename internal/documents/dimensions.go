package documents

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

const sqlDimensions = "SELECT dimensions FROM document_indexes WHERE tenant = ?"

// prefetchDimensions is what dimensionsOf reads, once in a transaction.
func prefetchDimensions(tenant int64) driver.Prefetch {
	p := driver.NewPrefetch(sqlDimensions, driver.RowName{Of: "document_indexes", No: tenant}).Int(tenant)
	p.Shared = true
	return p
}

// sqlEmbedded finds a vector of a tenant's documents. Deleted documents do not count: removing
// them takes a while, and the model may have changed meanwhile.
const sqlEmbedded = `
SELECT 1 WHERE EXISTS (SELECT 1 FROM document_revisions WHERE tenant = ?1 AND live IS NOT NULL AND embedded > 0)
  OR EXISTS (SELECT 1 FROM documents d JOIN document_revisions r ON r.no = d.latest WHERE d.tenant = ?1 AND r.embedded > 0)`

// dimensionState is what a transaction knows of the vectors of a tenant.
type dimensionState struct {
	dimensions int64 // 0: there are no vectors yet
	uses       int   // operations that have stored such vectors
}

// dimensionsOf reads the dimension of a tenant's vectors once in a transaction.
func (t *tx) dimensionsOf(tenant int64) (*dimensionState, error) {
	if known := t.dimensions[tenant]; known != nil {
		return known, nil
	}
	read := &dimensionState{}
	if _, err := t.Prep(sqlDimensions).Int(tenant).One(func(r driver.Row) { read.dimensions = r.Int(0) }); err != nil {
		return nil, err
	}
	if known := t.dimensions[tenant]; known != nil { // by another operation, meanwhile
		return known, nil
	}
	if t.dimensions == nil {
		t.dimensions = map[int64]*dimensionState{}
	}
	t.dimensions[tenant] = read
	return read, nil
}

// checkDimensions refuses vectors of another dimension than those of the tenant's documents. The
// first vectors decide.
func (t *tx) checkDimensions(tenant, dimensions int64) error {
	known, err := t.dimensionsOf(tenant)
	for err == nil && known.dimensions != 0 && known.dimensions != dimensions {
		asked, embedded := *known, false
		embedded, err = t.Prep(sqlEmbedded).Int(tenant).One(func(driver.Row) {})
		switch {
		case err != nil:
		case *known != asked: // another operation has stored some meanwhile
			continue
		case embedded:
			return errDimensions(known.dimensions, dimensions)
		default:
			return nil
		}
	}
	return err
}

// setDimensions stores the dimension of vectors that were checked.
func (t *tx) setDimensions(tenant, dimensions int64) error {
	known := t.dimensions[tenant]
	if known.uses++; known.dimensions == dimensions {
		return nil
	}
	known.dimensions = dimensions
	return t.Prep("INSERT INTO document_indexes (tenant, dimensions) VALUES (?1, ?2) ON CONFLICT (tenant) DO UPDATE SET dimensions = ?2").
		Int(tenant).Int(dimensions).Exec()
}

func errDimensions(index, given int64) error {
	return forebay.Errorf(forebay.CodeDimensionsChanged,
		"the model makes vectors of %d dimensions, and the index has %d: use the model that made it, or delete all documents and add them again", given, index)
}
