-- A job's own limit in tokens, beside the one in money. NULL: none.
ALTER TABLE jobs ADD COLUMN max_total_tokens INTEGER;
-- What was held for a call of which nobody knows what it used: it counts as used, but nobody can say how much of it was input.
ALTER TABLE attempts ADD COLUMN assumed_tokens INTEGER;
