-- Many sessions become ready at the same time: finding the first of them must not read them all. On
-- SQLite every index ends with the number of its row.
-- postgresql:
DROP INDEX sessions_ready;
CREATE INDEX sessions_ready ON sessions (queue, visible, no) WHERE visible IS NOT NULL;
ALTER TABLE sessions SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
