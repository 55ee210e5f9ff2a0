-- The size of a response that was made in the background is that of its stream as well.
UPDATE responses SET size = size + (SELECT coalesce(sum(length(events.body)), 0) FROM events WHERE events.response = responses.id)
WHERE background = 1 AND deleted = 0;
