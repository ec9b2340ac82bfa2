-- Messages that come over AMQP leave over AMQP as they came.
ALTER TABLE bodies ADD COLUMN amqp BLOB;
ALTER TABLE shared_bodies ADD COLUMN amqp BLOB;

-- Service Bus finds entities whatever the case of their names.
CREATE INDEX queues_folded ON queues (tenant, lower(name), name) WHERE tenant IS NOT NULL;
