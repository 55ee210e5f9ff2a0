-- One row for each response. `parent` is the one that it continues, `uses` counts those that continue it. A deleted response
-- that others are built on keeps its items until the last of them goes; its `body` is gone at once.
-- `lease`: until when the process that makes an open response is taken for alive.
CREATE TABLE responses (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  parent TEXT,
  conversation TEXT,
  created DOUBLE PRECISION NOT NULL,
  status TEXT NOT NULL,
  background BIGINT NOT NULL,
  upstream TEXT NOT NULL,
  deleted BIGINT NOT NULL DEFAULT 0,
  cancelled BIGINT NOT NULL DEFAULT 0,
  uses BIGINT NOT NULL DEFAULT 0,
  lease DOUBLE PRECISION NOT NULL DEFAULT 0,
  size BIGINT NOT NULL,
  body BYTEA NOT NULL,
  input BYTEA NOT NULL,
  output BYTEA NOT NULL
);
CREATE INDEX responses_by_age ON responses (created, size);

-- The stream of a response that is made in the background, so that a client can come back to it.
CREATE TABLE events (
  response TEXT NOT NULL,
  number BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (response, number)
);

-- Conversations and their items. `next` is the position of the next item; `lock` names the response that is being added.
CREATE TABLE conversations (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  created DOUBLE PRECISION NOT NULL,
  used DOUBLE PRECISION NOT NULL,
  metadata BYTEA NOT NULL,
  next BIGINT NOT NULL DEFAULT 0,
  lock TEXT NOT NULL DEFAULT '',
  locked_until DOUBLE PRECISION NOT NULL DEFAULT 0
);
CREATE INDEX conversations_by_use ON conversations (used);
CREATE TABLE items (
  conversation TEXT NOT NULL,
  position BIGINT NOT NULL,
  owner TEXT NOT NULL,
  id TEXT NOT NULL,
  size BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (conversation, position)
);
CREATE INDEX items_by_id ON items (id);
CREATE INDEX items_by_size ON items (conversation, size);
