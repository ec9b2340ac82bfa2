-- Sums of days are made when a day is over. Those that are here are whole, and stay so: what is
-- counted of their days later is added to them.
INSERT INTO counters (name, value)
SELECT 'usage/days', (max(day) + 1) * 1099511627776 - 1 FROM usage_days HAVING max(day) IS NOT NULL; -- 2^40 tenants a day
-- postgresql:
INSERT INTO usage_days (tenant, detail, day, task, deployment, part, attempts, succeeded, failed, throttled, input_tokens, output_tokens,
  assumed_tokens, cost)
SELECT tenant, detail, day, task, deployment, -1, sum(attempts), sum(succeeded), sum(failed), sum(throttled), sum(input_tokens),
  sum(output_tokens), sum(assumed_tokens), sum(cost)
FROM usage_days GROUP BY tenant, detail, day, task, deployment HAVING max(part) > 0;
DELETE FROM usage_days d WHERE part >= 0
  AND EXISTS (SELECT 1 FROM usage_days s WHERE (s.tenant, s.detail, s.day, s.task, s.deployment, s.part) = (d.tenant, d.detail, d.day, d.task, d.deployment, -1));
ALTER TABLE usage_days DROP CONSTRAINT usage_days_pkey, DROP COLUMN part, ADD PRIMARY KEY (tenant, detail, day, task, deployment);
ALTER TABLE usage_days RESET (fillfactor);
-- sqlite:
ALTER TABLE usage_days RENAME TO old_days;
CREATE TABLE usage_days (
  tenant         INTEGER NOT NULL,
  detail         INTEGER NOT NULL,
  day            INTEGER NOT NULL,
  task           TEXT NOT NULL,
  deployment     TEXT NOT NULL,
  attempts       INTEGER NOT NULL,
  succeeded      INTEGER NOT NULL,
  failed         INTEGER NOT NULL,
  throttled      INTEGER NOT NULL,
  input_tokens   INTEGER NOT NULL,
  output_tokens  INTEGER NOT NULL,
  assumed_tokens INTEGER NOT NULL,
  cost           INTEGER NOT NULL,
  PRIMARY KEY (tenant, detail, day, task, deployment)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_days SELECT tenant, detail, day, task, deployment, sum(attempts), sum(succeeded), sum(failed), sum(throttled),
  sum(input_tokens), sum(output_tokens), sum(assumed_tokens), sum(cost)
FROM old_days GROUP BY tenant, detail, day, task, deployment;
DROP TABLE old_days;
-- all:
