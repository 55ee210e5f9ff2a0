-- The texts of plain reads stand beside what is packed of a group's `streams`, and several of one read together: an earlier
-- version would not find them there.
SELECT 1;
