-- `compacts`: the output holds a compaction, which stands for everything before it. Whoever continues the response needs nothing
-- of what is before it.
ALTER TABLE responses ADD COLUMN compacts BIGINT NOT NULL DEFAULT 0;
