-- What is asked for of entries of the audit log that are no events of jobs: of those there may be any number, and who looks for what
-- operators did would walk them all. An index of the log itself would make each event half as dear again to write.
CREATE TABLE audit_acts (
  no     INTEGER PRIMARY KEY, -- this and the others as in audit
  tenant TEXT NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL
) STRICT;

INSERT INTO audit_acts (no, tenant, actor, action) SELECT no, tenant, actor, action FROM audit
  WHERE actor <> 'forebay' OR action NOT IN ('accepted', 'started', 'attempt_failed', 'throttled', 'retry_scheduled', 'succeeded',
    'failed', 'dead_lettered', 'quarantined', 'cancelled', 'expired', 'redriven');

-- sqlite:
CREATE TRIGGER audit_acts_update BEFORE UPDATE ON audit_acts
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;

CREATE TRIGGER audit_acts_delete BEFORE DELETE ON audit_acts
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;
-- postgresql:
CREATE TRIGGER audit_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_acts FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
-- all:
