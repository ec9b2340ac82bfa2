-- Attempts outlive the execution that made them: "run" grows whenever the instance continues as new, too, and the pool says which activity it was
-- when the history does not any more. NULL: the attempt is older than this column.
ALTER TABLE orchestration_attempts ADD COLUMN pool INTEGER;
-- The API key whose budget pays for the jobs of the instance, beside its tenant's. NULL: none does.
ALTER TABLE orchestrations ADD COLUMN key_id TEXT;
