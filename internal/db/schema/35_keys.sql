-- Keys for clients of Service Bus: bound to entities, and able to sign tokens.
ALTER TABLE api_keys ADD COLUMN entities TEXT;
ALTER TABLE api_keys ADD COLUMN hmac_state BLOB;
