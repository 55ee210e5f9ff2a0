-- `heads` holds heads as the event loop knew them, and in `streams` the texts of plain reads stand beside what is packed: an
-- earlier version would find neither. Older rows of `groups` stay as they are and tell it by their first byte.
SELECT 1;
