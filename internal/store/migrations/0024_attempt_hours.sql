-- How many attempts ended in each hour, and how: what reports are made of. Rows of attempts go with
-- their jobs; these stay for some months.
CREATE TABLE attempt_hours (
  tenant      INTEGER NOT NULL,
  hour        INTEGER NOT NULL,          -- finished_at / 3600000
  task        TEXT NOT NULL,
  deployment  TEXT NOT NULL,
  number      INTEGER NOT NULL,          -- of the attempt in its generation; 100 stands for all above
  outcome     TEXT NOT NULL,
  error_class TEXT NOT NULL,             -- '': no error
  error_code  TEXT NOT NULL,
  attempts    INTEGER NOT NULL,
  retries     INTEGER NOT NULL,          -- of these, calls of jobs that were retried before
  PRIMARY KEY (tenant, hour, task, deployment, number, outcome, error_class, error_code)
) STRICT, WITHOUT ROWID;

INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries)
SELECT j.tenant, a.finished_at / 3600000, j.task, a.deployment, CASE WHEN a.number > 100 THEN 100 ELSE a.number END, a.outcome,
  coalesce(a.error_class, ''), coalesce(a.error_code, ''), count(*),
  count(*) FILTER (WHERE EXISTS (SELECT 1 FROM attempts e WHERE e.seq = a.seq AND e.generation = a.generation AND e.number < a.number AND e.outcome = 'retried'))
FROM attempts a JOIN jobs j ON j.seq = a.seq
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;

-- postgresql:
-- A row of the hour that runs is changed by each transaction: room for its versions on its own page.
ALTER TABLE attempt_hours SET (fillfactor = 50);
