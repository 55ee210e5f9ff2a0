-- Reads and writes apart from the other lines, packed as strings of numbers and bytes. In older rows they stand in `lines`.
ALTER TABLE exchanges ADD COLUMN streams BLOB;
