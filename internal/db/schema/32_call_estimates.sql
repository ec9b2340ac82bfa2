-- What the call of an input in blob storage needs: a claim cannot look there.
ALTER TABLE jobs ADD COLUMN estimate BLOB;
