-- Each transaction asks whether any queue is paused.
CREATE INDEX queues_paused ON queues (no) WHERE paused <> 0;
