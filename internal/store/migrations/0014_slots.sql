-- How many calls for a tenant's jobs may be under way at once; NULL: as many as there are workers.
ALTER TABLE tenants ADD COLUMN concurrency INTEGER;
-- What the configuration said of it when it was last heard; NULL: nothing.
ALTER TABLE tenants ADD COLUMN configured_concurrency INTEGER;
CREATE INDEX tenants_capped ON tenants (no) WHERE concurrency IS NOT NULL;

-- Calls that are under way for a tenant, or at a deployment, that takes only so many at once. A row
-- counts for as long as its lock holds the message, so nothing need be done for those that are lost.
CREATE TABLE slots (
  seq    INTEGER NOT NULL,
  token  INTEGER NOT NULL,
  holder TEXT NOT NULL,    -- tenant/NUMBER or deployment/NAME
  PRIMARY KEY (seq, token, holder)
) STRICT, WITHOUT ROWID;
