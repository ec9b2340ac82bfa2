-- What operators see of what happens now.

-- Where the call of a locked job goes, what is reserved for it, and which process has it.
ALTER TABLE messages ADD COLUMN deployment TEXT;
ALTER TABLE messages ADD COLUMN reserved INTEGER;
ALTER TABLE messages ADD COLUMN process INTEGER;

-- The processes that share the database. Each writes its own row, every ten seconds and as it begins to
-- stop. One that has the database for itself has none.
CREATE TABLE processes (
  no         INTEGER PRIMARY KEY,
  id         TEXT NOT NULL UNIQUE,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL,
  version    TEXT NOT NULL,
  role       TEXT NOT NULL,              -- what it does, as configured
  started_at INTEGER NOT NULL,
  seen_at    INTEGER NOT NULL,           -- when it wrote this
  draining   INTEGER NOT NULL DEFAULT 0, -- 1: it takes no more jobs
  queues     BLOB NOT NULL               -- JSON: its calls under way, and its places for them, by queue
) STRICT;
