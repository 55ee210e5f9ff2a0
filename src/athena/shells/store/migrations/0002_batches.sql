-- Batches and their requests. `due` of a request: not to be asked before; while it runs, until when its process is taken for
-- alive. A file that holds the results of a batch has no parts of its own: they are written from the results.
CREATE TABLE batches (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  dialect TEXT NOT NULL,
  created DOUBLE PRECISION NOT NULL,
  expires DOUBLE PRECISION NOT NULL,
  state TEXT NOT NULL,
  cancelled DOUBLE PRECISION,
  ended DOUBLE PRECISION,
  body BYTEA NOT NULL
);
CREATE INDEX batches_by_owner ON batches (owner, dialect, created, id);
CREATE INDEX batches_by_state ON batches (state, expires);
CREATE TABLE batch_requests (
  batch TEXT NOT NULL,
  position BIGINT NOT NULL,
  custom_id TEXT NOT NULL,
  state TEXT NOT NULL,
  due DOUBLE PRECISION NOT NULL DEFAULT 0,
  holder TEXT NOT NULL DEFAULT '',
  attempts BIGINT NOT NULL DEFAULT 0,
  status BIGINT NOT NULL DEFAULT 0,
  request TEXT NOT NULL DEFAULT '',
  size BIGINT NOT NULL,
  body BYTEA NOT NULL,
  result BYTEA,
  PRIMARY KEY (batch, position)
);
CREATE INDEX batch_requests_by_due ON batch_requests (state, due);
CREATE TABLE files (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  created DOUBLE PRECISION NOT NULL,
  size BIGINT NOT NULL,
  body BYTEA NOT NULL
);
CREATE INDEX files_by_owner ON files (owner, created, id);
CREATE TABLE file_parts (
  file TEXT NOT NULL,
  position BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (file, position)
);
