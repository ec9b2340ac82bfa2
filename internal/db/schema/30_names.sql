-- Tables and columns get the names that the code has for them.
ALTER TABLE orchestration_turns RENAME TO orchestration_items;
ALTER TABLE orchestration_pools RENAME TO orchestration_queues;
ALTER TABLE messages RENAME COLUMN lane TO subqueue;
ALTER TABLE messages RENAME COLUMN rank TO flow;
ALTER TABLE messages RENAME COLUMN visible TO visible_at;
ALTER TABLE messages RENAME COLUMN token TO lock_token;
ALTER TABLE job_session_holds RENAME COLUMN token TO lock_token;
ALTER TABLE slots RENAME COLUMN token TO lock_token;
ALTER TABLE budget_holds RENAME COLUMN token TO lock_token;
ALTER TABLE budget_waits RENAME COLUMN rank TO flow;
ALTER TABLE bodies RENAME COLUMN lane TO subqueue;
ALTER TABLE sessions RENAME COLUMN visible TO visible_at;
ALTER TABLE sessions RENAME COLUMN token TO lock_token;
ALTER TABLE webhook_deliveries RENAME COLUMN token TO lock_token;
ALTER TABLE orchestration_items RENAME COLUMN pool TO work_queue;
ALTER TABLE orchestration_items RENAME COLUMN visible TO visible_at;
ALTER TABLE orchestration_items RENAME COLUMN token TO lock_token;
ALTER TABLE orchestration_history RENAME COLUMN turn TO item;
ALTER TABLE orchestration_inbox RENAME COLUMN visible TO visible_at;
ALTER TABLE orchestration_activities RENAME COLUMN pool TO work_queue;
ALTER TABLE orchestration_activities DROP COLUMN turns;
ALTER TABLE orchestration_activities RENAME COLUMN visible TO visible_at;
ALTER TABLE orchestration_activities RENAME COLUMN token TO lock_token;
ALTER TABLE orchestration_attempts RENAME COLUMN pool TO work_queue;

-- sqlite:
DROP INDEX orchestration_turns_ready;
CREATE INDEX orchestration_items_ready ON orchestration_items (work_queue, visible_at);
DROP INDEX bodies_lane;
CREATE INDEX bodies_subqueue ON bodies (subqueue);
-- postgresql:
ALTER INDEX orchestration_turns_ready RENAME TO orchestration_items_ready;
ALTER INDEX orchestration_turns_pkey RENAME TO orchestration_items_pkey;
ALTER INDEX orchestration_pools_pkey RENAME TO orchestration_queues_pkey;
ALTER INDEX orchestration_pools_tenant_kind_name_key RENAME TO orchestration_queues_tenant_kind_name_key;
ALTER SEQUENCE orchestration_pools_no_seq RENAME TO orchestration_queues_no_seq;
ALTER SEQUENCE orchestration_turns_instance_seq RENAME TO orchestration_items_instance_seq;
ALTER INDEX bodies_lane RENAME TO bodies_subqueue;
-- all:
