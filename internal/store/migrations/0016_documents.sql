-- A document is what its tenant calls by one id. Each upload of other content is a revision of it: the
-- latest is what its pipeline works on, the live one, until then the one before, is what searches find.
CREATE TABLE documents (
  no         INTEGER PRIMARY KEY,
  tenant     INTEGER NOT NULL,
  id         TEXT NOT NULL,
  latest     INTEGER NOT NULL,          -- revision
  created_at INTEGER NOT NULL,
  UNIQUE (tenant, id)
) STRICT;
-- sqlite:
CREATE INDEX documents_tenant ON documents (tenant);
-- postgresql:
CREATE INDEX documents_tenant ON documents (tenant, no);
-- all:

CREATE TABLE document_revisions (
  no           INTEGER PRIMARY KEY,
  id           TEXT NOT NULL UNIQUE,
  tenant       INTEGER NOT NULL,
  document     INTEGER NOT NULL,
  hash         BLOB NOT NULL,           -- SHA-256 of the content
  media_type   TEXT NOT NULL,
  charset      TEXT NOT NULL,
  name         TEXT NOT NULL,           -- of the file; may be empty
  size         INTEGER NOT NULL,
  content_blob TEXT NOT NULL,
  metadata     BLOB,                    -- the client's
  key_id       TEXT,                    -- the API key whose budget pays as well
  uploaded_at  INTEGER NOT NULL,
  title        TEXT NOT NULL DEFAULT '',
  language     TEXT NOT NULL DEFAULT '',
  entities     BLOB,                    -- JSON
  text_bytes   INTEGER NOT NULL DEFAULT 0,
  pages        INTEGER NOT NULL DEFAULT 0,
  tokens       INTEGER NOT NULL DEFAULT 0,
  chunks       INTEGER NOT NULL DEFAULT 0,
  embedded     INTEGER NOT NULL DEFAULT 0, -- chunks that have a vector
  splitter     INTEGER NOT NULL DEFAULT 0, -- who stores its chunks now: the latest who began
  split_at     INTEGER,                 -- all chunks are there
  described_at INTEGER,                 -- the metadata is there
  ready_at     INTEGER,
  live         INTEGER,                 -- a number that counts up as revisions go live; NULL: no search finds it
  dropped      INTEGER NOT NULL DEFAULT 0  -- 1: to be removed
) STRICT;
CREATE INDEX document_revisions_live ON document_revisions (tenant, live) WHERE live IS NOT NULL;
CREATE INDEX document_revisions_order ON document_revisions (live) WHERE live IS NOT NULL;
CREATE INDEX document_revisions_document ON document_revisions (document);
CREATE INDEX document_revisions_dropped ON document_revisions (no) WHERE dropped = 1;

-- The jobs of a revision: one that cuts it into chunks, those that embed so many of these each, one that
-- describes it.
CREATE TABLE document_jobs (
  seq           INTEGER PRIMARY KEY,
  revision      INTEGER NOT NULL,
  branch        TEXT NOT NULL,
  first         INTEGER NOT NULL,       -- chunk
  last          INTEGER NOT NULL,
  done          INTEGER NOT NULL DEFAULT 0,
  error_code    TEXT,                   -- it has failed
  error_message BLOB
) STRICT;
CREATE INDEX document_jobs_revision ON document_jobs (revision);

CREATE TABLE chunks (
  no         INTEGER PRIMARY KEY,
  tenant     INTEGER NOT NULL,
  revision   INTEGER NOT NULL,
  number     INTEGER NOT NULL,          -- in the revision, from 0
  start_byte INTEGER NOT NULL,
  end_byte   INTEGER NOT NULL,
  start_char INTEGER NOT NULL,
  end_char   INTEGER NOT NULL,
  page       INTEGER NOT NULL,          -- 0: none
  tokens     INTEGER NOT NULL,
  headings   BLOB,                      -- JSON
  text       TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX chunks_revision ON chunks (revision, number);

-- The vectors of chunks, of length 1: little-endian float32. Their codes stand apart, for these are read all.
CREATE TABLE chunk_vectors (
  chunk  INTEGER PRIMARY KEY,
  vector BLOB NOT NULL
) STRICT;
CREATE TABLE chunk_codes (
  revision INTEGER NOT NULL,
  chunk    INTEGER NOT NULL,
  code     BLOB NOT NULL,
  PRIMARY KEY (revision, chunk)
) STRICT, WITHOUT ROWID;

-- The dimension of a tenant's vectors, as long as it has documents.
CREATE TABLE document_indexes (
  tenant     INTEGER PRIMARY KEY,
  dimensions INTEGER NOT NULL
) STRICT;

-- The words of chunks. Of all tenants in one index, so each text has a word for its tenant, which no text has
-- itself.
-- sqlite:
CREATE VIRTUAL TABLE chunk_words USING fts5(tenant, text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2');
CREATE TRIGGER chunks_inserted AFTER INSERT ON chunks BEGIN
  INSERT INTO chunk_words (rowid, tenant, text) VALUES (new.no, 't' || new.tenant, new.text);
END;
CREATE TRIGGER chunks_deleted AFTER DELETE ON chunks BEGIN
  DELETE FROM chunk_words WHERE rowid = old.no;
END;
-- postgresql:
ALTER TABLE chunks ADD COLUMN words tsvector GENERATED ALWAYS AS
  (array_to_tsvector(ARRAY['#' || CAST(tenant AS TEXT)]) || to_tsvector('pg_catalog.simple', text)) STORED;
CREATE INDEX chunks_words ON chunks USING gin (words);
