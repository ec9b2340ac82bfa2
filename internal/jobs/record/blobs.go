package record

import "github.com/forebayhq/forebay/internal/db/driver"

const (
	sqlBlobInUse = `SELECT 1 FROM jobs j LEFT JOIN outcomes o ON o.seq = j.seq
WHERE j.id = ?1 AND (j.input_blob = ?2 OR o.result_blob = ?2 OR o.seq IS NULL)`
	sqlBlobRecorded = `SELECT 1 FROM jobs j LEFT JOIN outcomes o ON o.seq = j.seq
WHERE j.id = ?1 AND (j.input_blob = ?2 OR o.result_blob = ?2)`
)

// BlobsInUse calls used with each key that the key's job refers to, or may refer to once it has
// ended. ids maps keys to the ids of their jobs.
func BlobsInUse(c driver.Conn, ids map[string]string, used func(key string)) error {
	for key, id := range ids {
		if _, err := c.Prep(sqlBlobInUse).Text(id).Text(key).One(func(driver.Row) { used(key) }); err != nil {
			return err
		}
	}
	return nil
}

// BlobRecorded reports whether a job of that id, or its outcome, refers to the blob.
func BlobRecorded(c driver.Conn, id, key string) (bool, error) {
	return c.Prep(sqlBlobRecorded).Text(id).Text(key).One(func(driver.Row) {})
}
