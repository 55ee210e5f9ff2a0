-- One row for each exchange. `row` is its line in a list, `lines` everything else of it but the bodies of requests.
CREATE TABLE exchanges (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  at REAL NOT NULL,
  session TEXT NOT NULL,
  weight INTEGER NOT NULL,
  row BLOB NOT NULL,
  lines BLOB NOT NULL
);
CREATE INDEX exchanges_by_age ON exchanges (weight, at);
CREATE INDEX exchanges_by_time ON exchanges (at);
CREATE INDEX exchanges_by_session ON exchanges (session, at) WHERE session <> '';

-- Bodies and settings by their content. `data` is packed; with a `base` it tells how the body follows from that one.
CREATE TABLE blobs (
  number INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE,
  base INTEGER REFERENCES blobs (number),
  uses INTEGER NOT NULL,
  data BLOB NOT NULL
);

-- Which blobs an exchange holds, in the order in which its lines name them.
CREATE TABLE parts (
  exchange INTEGER NOT NULL,
  position INTEGER NOT NULL,
  blob INTEGER NOT NULL,
  PRIMARY KEY (exchange, position)
) WITHOUT ROWID;
