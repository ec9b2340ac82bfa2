-- A number that only completes an order stands as an expression on PostgreSQL, and keys are made last.
-- Otherwise plans that were made while a table was empty would read all rows of a tenant.
-- postgresql:
DROP INDEX jobs_tenant;
CREATE INDEX jobs_tenant ON jobs (tenant, (seq + 0));
DROP INDEX jobs_correlation;
CREATE INDEX jobs_correlation ON jobs (tenant, correlation_id, (seq + 0)) WHERE correlation_id IS NOT NULL;
DROP INDEX jobs_session;
CREATE INDEX jobs_session ON jobs (tenant, session_id, (seq + 0)) WHERE session_id IS NOT NULL;
DROP INDEX orchestrations_tenant;
CREATE INDEX orchestrations_tenant ON orchestrations (tenant, (no + 0));
DROP INDEX orchestrations_unhappy;
CREATE INDEX orchestrations_unhappy ON orchestrations (tenant, status, (no + 0)) WHERE status <> 'Completed';
DROP INDEX orchestrations_open;
CREATE INDEX orchestrations_open ON orchestrations (tenant, (no + 0)) WHERE status IS NULL;
DROP INDEX documents_tenant;
CREATE INDEX documents_tenant ON documents (tenant, (no + 0));
DROP INDEX files_owner;
CREATE INDEX files_owner ON files (tenant, (no + 0));
DROP INDEX responses_tenant;
CREATE INDEX responses_tenant ON responses (tenant, (no + 0));
ALTER TABLE jobs DROP CONSTRAINT jobs_id_key, ADD CONSTRAINT jobs_id_key UNIQUE (id);
ALTER TABLE budgets DROP CONSTRAINT budgets_tenant_key_id_key, ADD CONSTRAINT budgets_tenant_key_id_key UNIQUE (tenant, key_id);
ALTER TABLE orchestrations DROP CONSTRAINT orchestrations_tenant_id_key,
  ADD CONSTRAINT orchestrations_tenant_id_key UNIQUE (tenant, id);
ALTER TABLE documents DROP CONSTRAINT documents_tenant_id_key, ADD CONSTRAINT documents_tenant_id_key UNIQUE (tenant, id);
ALTER TABLE document_revisions DROP CONSTRAINT document_revisions_id_key, ADD CONSTRAINT document_revisions_id_key UNIQUE (id);
ALTER TABLE files DROP CONSTRAINT files_id_key, ADD CONSTRAINT files_id_key UNIQUE (id);
ALTER TABLE batches DROP CONSTRAINT batches_id_key, ADD CONSTRAINT batches_id_key UNIQUE (id);
ALTER TABLE responses DROP CONSTRAINT responses_id_key, ADD CONSTRAINT responses_id_key UNIQUE (id);
-- all:
