-- Which blobs an exchange holds, in the order in which its lines name them, as a JSON list: one row less for each of them.
ALTER TABLE exchanges ADD COLUMN parts TEXT NOT NULL DEFAULT '[]';
UPDATE exchanges SET parts = (
  SELECT json_group_array(blob) FROM (SELECT blob FROM parts WHERE exchange = exchanges.number ORDER BY position)
);
DROP TABLE parts;
