-- Where a response belongs to a conversation: the position behind the items that were there when it was begun. What continues the
-- response by its id begins with them.
ALTER TABLE responses ADD COLUMN position BIGINT;
