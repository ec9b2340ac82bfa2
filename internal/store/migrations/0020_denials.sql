-- Why a deployment's breaker was opened, where that was not for failures: the code of the error. NULL: it was, or is no breaker.
ALTER TABLE deployment_changes ADD COLUMN reason TEXT;
-- How much output the input of a job asks for that lies in blob storage, where a claim cannot look. NULL: it says nothing of that.
ALTER TABLE jobs ADD COLUMN max_output_tokens INTEGER;
