-- Which responses continue one is looked up instead of counted: so one statement writes a response.
CREATE INDEX responses_by_parent ON responses (parent) WHERE parent IS NOT NULL;
ALTER TABLE responses DROP COLUMN uses;
