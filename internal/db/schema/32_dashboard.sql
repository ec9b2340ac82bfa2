-- Who has signed in to the dashboard: a row for each session until it ends.
CREATE TABLE signins (
  hash       BLOB PRIMARY KEY, -- of the cookie's value, which is not stored
  owner      TEXT NOT NULL,    -- the key's id, or the person's name
  key_id     TEXT,             -- the API key whose rights it has; NULL: an OpenID Connect provider vouches for a person
  name       TEXT NOT NULL,    -- of the person; '', here and below: the key knows
  tenant     TEXT NOT NULL,    -- its name
  scopes     TEXT NOT NULL,    -- separated by spaces
  created_at INTEGER NOT NULL,
  used_at    INTEGER NOT NULL, -- lately: written once a minute
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX signins_owner ON signins (owner, created_at);
CREATE INDEX signins_expires ON signins (expires_at);
