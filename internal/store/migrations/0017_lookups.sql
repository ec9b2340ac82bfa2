-- Rows are looked up by their numbers along primary keys only: PostgreSQL takes any index in which a column stands for as good while
-- it believes a table to be empty. So where a number only completes an order it stands as an expression.
-- postgresql:
DROP INDEX messages_ready;
CREATE INDEX messages_ready ON messages (lane, rank, visible, (seq + 0));
DROP INDEX bodies_lane;
CREATE INDEX bodies_lane ON bodies (lane, (seq + 0));
DROP INDEX orchestration_turns_ready;
CREATE INDEX orchestration_turns_ready ON orchestration_turns (pool, visible);
DROP INDEX orchestration_activities_ready;
CREATE INDEX orchestration_activities_ready ON orchestration_activities (pool, visible);
-- all:
