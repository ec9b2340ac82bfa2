-- Queues of messages, topics and subscriptions get a status, and what Service Bus's management
-- protocol tells of them.
ALTER TABLE queues ADD COLUMN status INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN max_message INTEGER;
ALTER TABLE queues ADD COLUMN user_metadata TEXT;
ALTER TABLE queues ADD COLUMN attributes TEXT;
ALTER TABLE queues ADD COLUMN updated_at INTEGER;
ALTER TABLE queues ADD COLUMN accessed_at INTEGER;
