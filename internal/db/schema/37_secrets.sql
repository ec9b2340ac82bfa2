-- Keys that all processes share.
CREATE TABLE secrets (
  name   TEXT PRIMARY KEY, -- what it is for
  secret BLOB NOT NULL
) STRICT;
