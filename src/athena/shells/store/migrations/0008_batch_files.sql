-- Bytes of the file with the results of a batch, and of the one with its errors: NULL before they were counted, -1 when the client
-- has deleted the file.
ALTER TABLE batches ADD COLUMN output_bytes BIGINT;
ALTER TABLE batches ADD COLUMN error_bytes BIGINT;
