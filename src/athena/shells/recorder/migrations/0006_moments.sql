-- In `streams` of a group moments are numbers of eight bytes, and what is packed may have neither header nor checksum: an
-- earlier version could not read it. Older rows of `groups` stay as they are and tell it by what they hold.
SELECT 1;
