-- How far the journal of each process that writes this file was taken over into the tables; only SQLite has journals. A row goes
-- after the file of its journal.
CREATE TABLE journals (
  name TEXT PRIMARY KEY,
  applied BIGINT NOT NULL
);
