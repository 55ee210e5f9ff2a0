-- How often blobs were deleted. Whoever remembers blobs by their numbers forgets them then: others may have these numbers now.
CREATE TABLE deletions (count INTEGER NOT NULL);
INSERT INTO deletions (count) VALUES (0);
