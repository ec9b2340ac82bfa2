-- What several copies of one message have in common is stored once, and removed with the last of them.
CREATE TABLE shared_bodies (
  no INTEGER PRIMARY KEY, -- the number that the message had in the topic that made the copies
  body BLOB NOT NULL,
  properties BLOB         -- of the copies that have none in their own rows
) STRICT;
ALTER TABLE bodies ADD COLUMN shared INTEGER; -- the row of shared_bodies that has the body; NULL: this row has it
CREATE INDEX bodies_shared ON bodies (shared) WHERE shared IS NOT NULL;
-- sqlite:
CREATE TRIGGER bodies_deleted AFTER DELETE ON bodies WHEN old.shared IS NOT NULL BEGIN
  DELETE FROM shared_bodies WHERE no = old.shared AND NOT EXISTS (SELECT 1 FROM bodies WHERE shared = old.shared);
END;
-- postgresql:
CREATE FUNCTION bodies_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM shared_bodies WHERE no = OLD.shared AND NOT EXISTS (SELECT 1 FROM bodies WHERE shared = OLD.shared);
  RETURN NULL;
END $$;
CREATE TRIGGER bodies_deleted AFTER DELETE ON bodies FOR EACH ROW WHEN (OLD.shared IS NOT NULL) EXECUTE FUNCTION bodies_deleted();
-- all:
