-- What all processes know together of a deployment: its quota, its breaker (internal/quota).
CREATE TABLE deployments (
  name  TEXT PRIMARY KEY,
  state BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- What happened to deployments: a breaker that opened, a limit that was learned.
CREATE TABLE deployment_changes (
  no         INTEGER PRIMARY KEY,
  deployment TEXT NOT NULL,
  at         INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  until      INTEGER,
  quota      INTEGER -- tokens per minute
) STRICT;
