package documents

import "github.com/forebayhq/forebay/internal/db/driver"

// Statements that the steps of documents run. Where processes share a database, those of many
// documents are done as one.

// onlyRevision declares a statement that uses only the row of the revision which that parameter
// numbers.
func onlyRevision(parameter int, sql, form string) string {
	return driver.Only(driver.BatchForm(sql, form), driver.Rows{Table: "document_revisions", Of: "revision", By: parameter})
}

var (
	sqlBeginSplit = onlyRevision(2, "UPDATE document_revisions SET splitter = ? WHERE no = ?",
		"UPDATE document_revisions r SET splitter = p1 FROM %s WHERE r.no = ANY (ARRAY[p2])")
	sqlEndSplit = onlyRevision(8, `
UPDATE document_revisions SET title = ?, language = ?, text_bytes = ?, pages = ?, tokens = ?, chunks = ?, split_at = ? WHERE no = ?`, `
UPDATE document_revisions r SET title = p1, language = p2, text_bytes = p3, pages = p4, tokens = p5, chunks = p6, split_at = p7
FROM %s WHERE r.no = ANY (ARRAY[p8])`)
	sqlDescribe = onlyRevision(5, `
UPDATE document_revisions SET described_at = ?, entities = ?, title = CASE WHEN ?3 = '' THEN title ELSE ?3 END,
  language = CASE WHEN ?4 = '' THEN language ELSE ?4 END WHERE no = ?5`, `
UPDATE document_revisions r SET described_at = p1, entities = p2, title = CASE WHEN p3 = '' THEN r.title ELSE p3 END,
  language = CASE WHEN p4 = '' THEN r.language ELSE p4 END FROM %s WHERE r.no = ANY (ARRAY[p5])`)
	sqlRelabel = onlyRevision(3, "UPDATE document_revisions SET name = ?, metadata = ? WHERE no = ?",
		"UPDATE document_revisions r SET name = p1, metadata = p2 FROM %s WHERE r.no = ANY (ARRAY[p3])")
	sqlDropRevision = onlyRevision(1, "UPDATE document_revisions SET dropped = 1, live = NULL WHERE no = ?",
		"UPDATE document_revisions r SET dropped = 1, live = NULL FROM %s WHERE r.no = ANY (ARRAY[p1])")
	// The counter counts all that go live in a transaction, and each takes its number from there.
	sqlCountLive = driver.Only("INSERT INTO counters (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = counters.value + ?2",
		driver.Rows{Table: "counters", Of: "counter", By: 1})
	sqlGoLive = driver.Only(driver.BatchForm("UPDATE document_revisions SET ready_at = ?, live = (SELECT value FROM counters WHERE name = ?) - ? WHERE no = ?",
		"UPDATE document_revisions r SET ready_at = p1, live = (SELECT c.value FROM counters c WHERE c.name = p2) - p3 FROM %s WHERE r.no = ANY (ARRAY[p4])"),
		driver.Rows{Table: "document_revisions", Of: "revision", By: 4}, driver.Rows{Table: "counters", Of: "counter", By: 2, Many: true})
	sqlGoLiveDescribed = driver.Only(driver.BatchForm(`
UPDATE document_revisions SET ready_at = ?1, described_at = ?1, live = (SELECT value FROM counters WHERE name = ?2) - ?3, entities = ?5,
  title = CASE WHEN ?6 = '' THEN title ELSE ?6 END, language = CASE WHEN ?7 = '' THEN language ELSE ?7 END WHERE no = ?4`, `
UPDATE document_revisions r SET ready_at = p1, described_at = p1, live = (SELECT c.value FROM counters c WHERE c.name = p2) - p3, entities = p5,
  title = CASE WHEN p6 = '' THEN r.title ELSE p6 END, language = CASE WHEN p7 = '' THEN r.language ELSE p7 END FROM %s WHERE r.no = ANY (ARRAY[p4])`),
		driver.Rows{Table: "document_revisions", Of: "revision", By: 4}, driver.Rows{Table: "counters", Of: "counter", By: 2, Many: true})
	// Of a revision that is embedded in several batches the form adds their numbers up.
	sqlAddEmbedded = driver.Only(driver.BatchForm("UPDATE document_revisions SET embedded = embedded + ? WHERE no = ?", `
UPDATE document_revisions r SET embedded = r.embedded + x.more
FROM (SELECT p2 AS no, CAST(sum(p1) AS bigint) AS more FROM %s GROUP BY 1) x WHERE r.no = ANY (ARRAY[x.no])`),
		driver.Rows{Table: "document_revisions", Of: "revision", By: 2, Many: true})
	sqlDeleteDocument = driver.BatchForm("DELETE FROM documents WHERE no = ?", "DELETE FROM documents d USING %s WHERE d.no = ANY (ARRAY[p1])")
)

// Jobs of documents.
var (
	sqlInsertJob = driver.Only("INSERT INTO document_jobs (seq, revision, branch, first, last) VALUES (?, ?, ?, ?, ?)",
		driver.Rows{Table: "document_jobs", Of: "revision", By: 2}, driver.Rows{Table: "document_jobs (seq)", Of: "job", By: 1})
	sqlJobDone = driver.Only(driver.BatchForm(`
UPDATE document_jobs SET done = 1, error_code = NULL, error_message = NULL WHERE seq = (SELECT seq FROM jobs WHERE id = ?) AND revision + 0 = ?`, `
UPDATE document_jobs d SET done = 1, error_code = NULL, error_message = NULL
FROM %s WHERE d.seq = ANY (ARRAY[(SELECT j.seq FROM jobs j WHERE j.id = p1)]) AND d.revision + 0 = p2`),
		driver.Rows{Table: "document_jobs", Of: "revision", By: 2, Many: true}, driver.Rows{Table: "jobs", Of: "job id", By: 1})
	sqlJobWaits = driver.BatchForm("UPDATE document_jobs SET error_code = NULL, error_message = NULL WHERE seq = ?",
		"UPDATE document_jobs d SET error_code = NULL, error_message = NULL FROM %s WHERE d.seq = ANY (ARRAY[p1])")

	sqlJobFailed = driver.BatchForm("UPDATE document_jobs SET error_code = ?, error_message = ? WHERE seq = ? AND done = 0",
		"UPDATE document_jobs d SET error_code = p1, error_message = p2 FROM %s WHERE d.seq = ANY (ARRAY[p3]) AND d.done + 0 = 0")

	// A document that is deleted has several of these, and they become one statement.
	// The index of dead letters is not to be walked for it.
	sqlForgetJob = driver.BatchForm("DELETE FROM document_jobs WHERE seq = ?",
		"DELETE FROM document_jobs d USING %s WHERE d.seq = ANY (ARRAY[p1])")
	sqlForgetJobsOf = driver.Only(driver.BatchForm("DELETE FROM document_jobs WHERE revision = ?",
		"DELETE FROM document_jobs d USING %s WHERE d.revision = ANY (ARRAY[p1])"),
		driver.Rows{Table: "document_jobs", Of: "revision", By: 1}, driver.Rows{Table: "document_jobs (seq)"})
	sqlForgetDeadLetter = driver.BatchForm("DELETE FROM messages WHERE seq = ? AND (subqueue + 0) % 4 >= 2",
		"DELETE FROM messages m USING %s WHERE m.seq = ANY (ARRAY[p1]) AND (m.subqueue + 0) %% 4 >= 2")
)

// ofDocument are the row of a document, by its id, and ofUpload that of a revision by its own.
func ofDocument(parameter int) driver.Rows {
	return driver.Rows{Table: "documents", Of: "document id", By: parameter}
}
func ofUpload(parameter int) driver.Rows {
	return driver.Rows{Table: "document_revisions", Of: "revision id", By: parameter}
}

// Uploads. The number of a new document and of a new revision are known to the database alone. A
// document is looked up by its id also where all rows have one tenant. Of one that was read the
// number is known.
var (
	sqlInsertDocument = driver.Only("INSERT INTO documents (tenant, id, latest, created_at) VALUES (?, ?, 0, ?)", ofDocument(2))
	sqlInsertRevision = driver.Only(driver.BatchForm(`
INSERT INTO document_revisions (id, tenant, document, hash, media_type, charset, name, size, content_blob, metadata, key_id, uploaded_at)
SELECT ?, tenant, no, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM documents WHERE tenant = ? AND id = ?`, `
INSERT INTO document_revisions (id, tenant, document, hash, media_type, charset, name, size, content_blob, metadata, key_id, uploaded_at)
SELECT p1, d.tenant, d.no, p2, p3, p4, p5, p6, p7, p8, p9, p10 FROM %s, LATERAL (SELECT tenant, no FROM documents WHERE tenant = p11 AND id = p12 LIMIT 1) d`),
		ofUpload(1), ofDocument(12))
	sqlSetLatest = driver.Only(driver.BatchForm("UPDATE documents SET latest = (SELECT no FROM document_revisions WHERE id = ?) WHERE tenant = ? AND id = ?",
		"UPDATE documents d SET latest = (SELECT r.no FROM document_revisions r WHERE r.id = p1) FROM %s "+
			"WHERE d.no = ANY (ARRAY[(SELECT e.no FROM documents e WHERE e.tenant = p2 AND e.id = p3)])"),
		ofDocument(3), ofUpload(1))
	sqlInsertRevisionOf = driver.Only(`
INSERT INTO document_revisions (id, hash, media_type, charset, name, size, content_blob, metadata, key_id, uploaded_at, tenant, document)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, ofUpload(1))
	sqlSetLatestOf = driver.Only(driver.BatchForm("UPDATE documents SET latest = (SELECT no FROM document_revisions WHERE id = ?) WHERE no = ? AND id || '' = ?",
		"UPDATE documents d SET latest = (SELECT r.no FROM document_revisions r WHERE r.id = p1) FROM %s WHERE d.no = ANY (ARRAY[p2]) AND d.id || '' = p3"),
		ofDocument(3), ofUpload(1))
	sqlInsertFirstJob = driver.Only(driver.BatchForm("INSERT INTO document_jobs (seq, revision, branch, first, last) SELECT ?, no, ?, 0, 0 FROM document_revisions WHERE id = ?",
		"INSERT INTO document_jobs (seq, revision, branch, first, last) SELECT p1, r.no, p2, 0, 0 FROM %s JOIN document_revisions r ON r.id = ANY (ARRAY[p3])"),
		driver.Rows{Table: "document_jobs"}, ofUpload(3))
)
