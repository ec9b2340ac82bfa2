-- What all processes know together of a deployment: its quota, its breaker (internal/quota). It belongs to what calls go to, not to
-- the name alone: processes that are configured otherwise for one name have a row each.
CREATE TABLE deployment_states (
  name     TEXT NOT NULL,
  identity TEXT NOT NULL,    -- a digest of the provider, its endpoint and its model; '': of before that was kept, or nobody says
  since    INTEGER NOT NULL, -- when it began to be learned; 0: nobody knows
  state    BLOB NOT NULL,
  PRIMARY KEY (name, identity)
) STRICT, WITHOUT ROWID;

INSERT INTO deployment_states (name, identity, since, state) SELECT name, '', 0, state FROM deployments;

DROP TABLE deployments;
