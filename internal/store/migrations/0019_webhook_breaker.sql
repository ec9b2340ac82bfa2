-- The breaker of a webhook's endpoint.
ALTER TABLE webhooks ADD COLUMN failures INTEGER NOT NULL DEFAULT 0; -- in a row
ALTER TABLE webhooks ADD COLUMN openings INTEGER NOT NULL DEFAULT 0; -- in a row
ALTER TABLE webhooks ADD COLUMN paused_until INTEGER;                -- nothing is sent before

-- Deliveries of webhooks that are under way. A row counts for as long as its lock holds the message, so
-- nothing need be done for those that are lost.
CREATE TABLE webhook_deliveries (
  queue INTEGER NOT NULL, -- of the webhook
  seq   INTEGER NOT NULL,
  token INTEGER NOT NULL,
  probe INTEGER NOT NULL, -- 1: it finds out whether the endpoint works again
  PRIMARY KEY (queue, seq)
) STRICT, WITHOUT ROWID;
