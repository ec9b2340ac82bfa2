-- A message of which a topic makes many copies stands in it, with the rank 2, until the last of them is made.
ALTER TABLE bodies ADD COLUMN handed INTEGER; -- one more than the number of the last subscription that has its copies; NULL: it does not stand so
ALTER TABLE bodies ADD COLUMN copies INTEGER; -- how many copies there are of what it comes from, its own too
