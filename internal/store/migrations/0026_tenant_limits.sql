-- What an operator has set of a tenant's limits, and what the configuration said when it was last heard: JSON.
ALTER TABLE tenants ADD COLUMN limits TEXT;
ALTER TABLE tenants ADD COLUMN configured_limits TEXT;
