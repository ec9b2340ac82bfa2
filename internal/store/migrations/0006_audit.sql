-- The audit log becomes a hash chain that is only appended to. What it held before is chained by the
-- step that belongs to this migration.
ALTER TABLE audit RENAME TO audit_unchained;

CREATE TABLE audit (
  no     INTEGER PRIMARY KEY, -- 1, 2, 3, …
  at     INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  detail TEXT NOT NULL,
  prev   BLOB NOT NULL,       -- hash of the row before; zeros in the first
  hash   BLOB NOT NULL        -- SHA-256 of prev and the row
) STRICT;

-- sqlite:
CREATE TRIGGER audit_append BEFORE INSERT ON audit
WHEN NEW.no IS NOT (SELECT coalesce(max(no), 0) + 1 FROM audit)
  OR NEW.prev IS NOT coalesce((SELECT hash FROM audit ORDER BY no DESC LIMIT 1), zeroblob(32))
  OR length(NEW.hash) <> 32
BEGIN SELECT RAISE(ABORT, 'the audit log is a chain'); END;

CREATE TRIGGER audit_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;

CREATE TRIGGER audit_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;
-- postgresql:
CREATE FUNCTION audit_append() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  last_no bigint;
  last_hash bytea;
BEGIN
  SELECT no, hash INTO last_no, last_hash FROM audit ORDER BY no DESC LIMIT 1;
  IF NOT FOUND THEN
    last_no := 0;
    last_hash := decode(repeat('00', 32), 'hex');
  END IF;
  IF NEW.no IS DISTINCT FROM last_no + 1 OR NEW.prev IS DISTINCT FROM last_hash OR length(NEW.hash) <> 32 THEN
    RAISE EXCEPTION 'the audit log is a chain';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER audit_append BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_append();

CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is only appended to';
END $$;
CREATE TRIGGER audit_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
-- all:
