-- What is written together is packed together. `heads` holds a JSON list of exchanges without their settings, bodies and streams,
-- `streams` their reads and writes; an exchange that was deleted is null in both. In older rows of `exchanges` they stand in
-- `row`, `lines` and `streams`, which are empty in newer ones.
CREATE TABLE groups (
  number INTEGER PRIMARY KEY,
  uses INTEGER NOT NULL,
  heads BLOB NOT NULL,
  streams BLOB NOT NULL
);
ALTER TABLE exchanges ADD COLUMN grouped INTEGER REFERENCES groups (number);
ALTER TABLE exchanges ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE exchanges ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
