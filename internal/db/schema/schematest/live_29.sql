-- What a server of schema 29 left behind when it was killed, as of 1900000000000.
--
-- Jobs: over, dead-lettered, cancelled, running, held by a session, to be retried, without budget.
-- Messages: locked, deferred, scheduled, dead-lettered, in a locked session, of a topic with rules.
-- Orchestrations: with an activity under way and a timer, asleep, calling a job, retrying, suspended.
-- A document whose second revision waits for its model. Webhooks that fail and that do not answer.
--
-- The audit log has the times of 2026, for its hashes depend on them. TODAY and THIS_MONTH stand for
-- the beginning of the day and the month, in UTC.

INSERT INTO tenants (no, name, created_at, paused, concurrency, configured_concurrency) VALUES
  (1, 'metered', 1899999999408, 0, NULL, NULL),
  (2, 'default', 1899999999409, 0, 50, 50);

INSERT INTO api_keys (id, hash, tenant, scopes, created_at) VALUES
  ('key_06h1ay4cnbb2w7s84h9y4exq2m', x'0de19064d5175263374364eb7b04a504261e2e0b3934d37b51570f59969decfd', 'default', 'admin read submit operate', 1899999999981);

INSERT INTO audit (no, at, tenant, actor, action, target, detail, prev, hash) VALUES
  (1, 1795656551104, '', 'local', 'pause-deployment', 'good', '', x'0000000000000000000000000000000000000000000000000000000000000000', x'102582bbf3cde1a340130db4f7f1ddb52118621cc4df5e2ec745a72407dd2a5e'),
  (2, 1795656551127, 'default', 'local', 'create-webhook', 'slow', '{"url":"http://127.0.0.1:44701","event_types":["dead_lettered"]}', x'102582bbf3cde1a340130db4f7f1ddb52118621cc4df5e2ec745a72407dd2a5e', x'ad07b3a763d21fba94da6d3e7a91b97331a32fd65469047f03235741159896e7'),
  (3, 1795656551132, 'default', 'local', 'create-webhook', 'refuses', '{"url":"http://127.0.0.1:44701","event_types":["dead_lettered"]}', x'ad07b3a763d21fba94da6d3e7a91b97331a32fd65469047f03235741159896e7', x'686134824a3f73a196fd8cb6eb252e20df70befec34e7708627354357c511836'),
  (4, 1795656551152, 'default', 'forebay', 'dead_lettered', 'job_06h1ay4axykcve7y3775k1a2aw', '{"number":4,"queue":"default","task":"broken","generation":1,"attempt":1,"error_class":"permanent","error_code":"bad_input"}', x'686134824a3f73a196fd8cb6eb252e20df70befec34e7708627354357c511836', x'31d83c2338d14061b6d4bebd19af7e7b32aa2c7ffcd710bc14583bc9eccab684'),
  (5, 1795656551166, '', 'local', 'pause', 'later', '', x'31d83c2338d14061b6d4bebd19af7e7b32aa2c7ffcd710bc14583bc9eccab684', x'010b5017ed62f023fbaae7118de943102b1bc4928168b0b6c392acfafd1f8f44'),
  (6, 1795656551531, 'default', 'local', 'put-queue', 'mail', '{"lock_seconds":300,"max_delivery_count":10,"duplicate_detection_window_seconds":600,"requires_session":false}', x'010b5017ed62f023fbaae7118de943102b1bc4928168b0b6c392acfafd1f8f44', x'59f5372fa92dbc0210bfe002159337562e73890a6a20a63880a8c96aee45594c'),
  (7, 1795656551543, 'default', 'local', 'put-queue', 'talk', '{"lock_seconds":300,"max_delivery_count":10,"requires_session":true}', x'59f5372fa92dbc0210bfe002159337562e73890a6a20a63880a8c96aee45594c', x'2f70b3c69c665836705389c197200fe65ab331fab8971330714c7a3f7b89fee4'),
  (8, 1795656551551, 'default', 'local', 'put-topic', 'orders', '{"lock_seconds":60,"max_delivery_count":10,"requires_session":false}', x'2f70b3c69c665836705389c197200fe65ab331fab8971330714c7a3f7b89fee4', x'439e64ed5d49932ed4dbcb8a25087c64ac2aaac4bdcadc46666bc6e0392dc3d8'),
  (9, 1795656551552, 'default', 'local', 'put-subscription', 'orders/subscriptions/all', '{"lock_seconds":60,"max_delivery_count":10,"requires_session":false,"dead_letter_filter_errors":true}', x'439e64ed5d49932ed4dbcb8a25087c64ac2aaac4bdcadc46666bc6e0392dc3d8', x'f5d6e1937ad6ea93993234c7378b0323a04abf0eed7c2661ac91bef56298f8e4'),
  (10, 1795656551554, 'default', 'local', 'put-subscription', 'orders/subscriptions/large', '{"lock_seconds":60,"max_delivery_count":10,"requires_session":false,"dead_letter_filter_errors":true}', x'f5d6e1937ad6ea93993234c7378b0323a04abf0eed7c2661ac91bef56298f8e4', x'f8529f59daa9e91dd6b1b11e0c27c1da22aeaa6e9e4b24e0d3f8aba2ce335ba6'),
  (11, 1795656551577, 'default', 'local', 'suspend-orchestration', 'suspended', '', x'f8529f59daa9e91dd6b1b11e0c27c1da22aeaa6e9e4b24e0d3f8aba2ce335ba6', x'38f1d619b3492cccd53f3ac4986de15dc8451b4a3e6b7d3b9037ce3f9e2b599e'),
  (12, 1795656551594, 'default', 'local', 'create-key', 'key_06h1ay4cnbb2w7s84h9y4exq2m', '{"scopes":["admin","read","submit","operate"]}', x'38f1d619b3492cccd53f3ac4986de15dc8451b4a3e6b7d3b9037ce3f9e2b599e', x'f460c3bd0763d98c8589f9cd04c817d8c77891e4ca6906e8cb2397df2a69504e');

INSERT INTO audit_acts (no, tenant, actor, action) VALUES
  (1, '', 'local', 'pause-deployment'),
  (2, 'default', 'local', 'create-webhook'),
  (3, 'default', 'local', 'create-webhook'),
  (5, '', 'local', 'pause'),
  (6, 'default', 'local', 'put-queue'),
  (7, 'default', 'local', 'put-queue'),
  (8, 'default', 'local', 'put-topic'),
  (9, 'default', 'local', 'put-subscription'),
  (10, 'default', 'local', 'put-subscription'),
  (11, 'default', 'local', 'suspend-orchestration'),
  (12, 'default', 'local', 'create-key');

INSERT INTO counters (name, value) VALUES
  ('live', 1),
  ('seq', 4103),
  ('topics', 55),
  ('turn/purge', 1900003239422),
  ('turn/purge-orchestrations', 1900003239422);

INSERT INTO queues (no, name, kind, paused, created_at, tenant, lock, max_deliveries, default_ttl, dead_letter_expired, duplicate_window, requires_session, is_topic, topic, version, dead_letter_filter_errors) VALUES
  (1, 'default', 'jobs', 0, 1899999999404, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, NULL, NULL, 0),
  (2, 'later', 'jobs', 1, 1899999999406, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, NULL, NULL, 0),
  (3, 'default/job-events', 'messages', 0, 1899999999514, 2, 60000, 10, NULL, 0, NULL, 0, 1, NULL, 11, 0),
  (4, 'default/job-events/subscriptions/webhook-slow', 'messages', 0, 1899999999514, 2, 60000, 10, 345600000, 1, NULL, 0, 0, 3, NULL, 0),
  (5, 'default/job-events/subscriptions/webhook-refuses', 'messages', 0, 1899999999519, 2, 60000, 10, 345600000, 1, NULL, 0, 0, 3, NULL, 0),
  (6, 'default/mail', 'messages', 0, 1899999999918, 2, 300000, 10, NULL, 0, 600000, 0, 0, NULL, NULL, 0),
  (7, 'default/talk', 'messages', 0, 1899999999930, 2, 300000, 10, NULL, 0, NULL, 1, 0, NULL, NULL, 0),
  (8, 'default/orders', 'messages', 0, 1899999999938, 2, 60000, 10, NULL, 0, NULL, 0, 1, NULL, 55, 0),
  (9, 'default/orders/subscriptions/all', 'messages', 0, 1899999999939, 2, 60000, 10, NULL, 0, NULL, 0, 0, 8, NULL, 1),
  (10, 'default/orders/subscriptions/large', 'messages', 0, 1899999999941, 2, 60000, 10, NULL, 0, NULL, 0, 0, 8, NULL, 1);

INSERT INTO messages (seq, lane, rank, visible, token, locked_at, deliveries, generation, attempt, number, announced, version, size, tenant, started_at, waiting, last_error, reason) VALUES
  (5, 4, 2820, 1899999999501, NULL, NULL, 0, 1, 0, 0, 0, 1, 56, 2, NULL, NULL, NULL, NULL),
  (6, 4, 2212, 1899999999501, NULL, NULL, 0, 1, 0, 0, 0, 1, 59, 2, NULL, NULL, NULL, NULL),
  (16, 6, 2052, 1899999999539, NULL, NULL, 1, 1, 1, 1, 1, 4, 6, 2, 1899999999538, NULL, NULL, 'bad_input'),
  (21, 20, 0, 1900000004555, NULL, NULL, 1, 1, 0, 0, 0, 1, 671, 2, NULL, NULL, NULL, NULL),
  (22, 16, 0, 1900000059539, 2369865856914940066, 1899999999539, 1, 1, 0, 0, 0, 1, 671, 2, NULL, NULL, NULL, NULL),
  (23, 8, 2052, 1899999999555, NULL, NULL, 0, 1, 0, 0, 0, 1, 9, 2, NULL, NULL, NULL, NULL),
  (25, 4, 2052, 1900086399557, NULL, NULL, 0, 1, 0, 0, 0, 1, 11, 2, NULL, NULL, NULL, NULL),
  (27, 8, 2052, 1899999999559, NULL, NULL, 0, 1, 0, 0, 0, 1, 20, 2, NULL, NULL, NULL, NULL),
  (29, 8, 2052, 4611686018427387904, NULL, NULL, 0, 1, 0, 0, 0, 1, 21, 2, NULL, 'session', NULL, NULL),
  (31, 4, 2052, 1900000003561, 3564798845301945631, 1899999999561, 1, 1, 0, 1, 1, 2, 9, 2, 1899999999561, NULL, NULL, NULL),
  (34, 4, 2292, 1900000003602, 5123067321949992003, 1899999999602, 1, 1, 0, 1, 1, 2, 9, 2, 1899999999602, NULL, NULL, NULL),
  (40, 4, 2052, 1900000003702, NULL, NULL, 0, 1, 0, 0, 0, 1, 21, 2, NULL, 'session', NULL, NULL),
  (43, 4, 1076, 1900000003812, 6266917164254769949, 1899999999812, 1, 1, 0, 1, 1, 2, 10, 1, 1899999999812, NULL, NULL, NULL),
  (44, 4, 1076, TODAY + 86400000, NULL, NULL, 0, 1, 0, 0, 0, 1, 16, 1, NULL, 'budget', NULL, NULL),
  (45, 24, 0, 1900000299921, 6202823668860174155, 1899999999921, 1, 1, 0, 0, 0, 1, 29, 2, NULL, NULL, NULL, NULL),
  (46, 25, 0, 1899999999922, NULL, NULL, 1, 1, 0, 0, 0, 1, 35, 2, NULL, NULL, NULL, NULL),
  (47, 26, 0, 1899999999926, NULL, NULL, 1, 1, 0, 0, 0, 1, 23, 2, NULL, NULL, NULL, NULL),
  (48, 24, 1, 1900003599927, NULL, NULL, 0, 1, 0, 0, 0, 1, 38, 2, NULL, NULL, NULL, NULL),
  (49, 24, 0, 1899999999929, NULL, NULL, 0, 1, 0, 0, 0, 1, 29, 2, NULL, NULL, NULL, NULL),
  (50, 28, 17, 4611686018427387904, 2366148367512806945, 1899999999936, 1, 1, 0, 0, 0, 1, 18, 2, NULL, NULL, NULL, NULL),
  (51, 28, 17, 0, NULL, NULL, 0, 1, 0, 0, 0, 1, 18, 2, NULL, NULL, NULL, NULL),
  (52, 28, 18, 0, NULL, NULL, 0, 1, 0, 0, 0, 1, 18, 2, NULL, NULL, NULL, NULL),
  (57, 36, 0, 1899999999942, NULL, NULL, 0, 1, 0, 0, 0, 1, 26, 2, NULL, NULL, NULL, NULL),
  (58, 40, 0, 1899999999942, NULL, NULL, 0, 1, 0, 0, 0, 1, 61, 2, NULL, NULL, NULL, NULL),
  (60, 36, 0, 1899999999943, NULL, NULL, 0, 1, 0, 0, 0, 1, 23, 2, NULL, NULL, NULL, NULL),
  (73, 8, 2052, 1899999999972, NULL, NULL, 0, 1, 0, 0, 0, 1, 8, 2, NULL, NULL, NULL, NULL),
  (80, 5, 2052, 1900000002988, NULL, NULL, 0, 1, 1, 1, 1, 4, 9, 2, 1899999999986, 'schedule', CAST('error: not yet' AS BLOB), NULL);

INSERT INTO jobs (seq, id, tenant, queue, task, priority, max_attempts, created_at, scheduled_at, session_id, correlation_id, metadata, input_size, input) VALUES
  (1, 'job_06h1ay4aggd3d6xfsqvqsjw91r', 2, 1, 'document-split', 5, 3, 1899999999434, NULL, NULL, 'rev_06h1ay4ag57gxvv6pnd1kvxrsc', NULL, 45, CAST('{"revision":"rev_06h1ay4ag57gxvv6pnd1kvxrsc"}' AS BLOB)),
  (2, 'job_06h1ay4aq3v7hhda760cs615vw', 2, 1, 'document-embed', 5, 3, 1899999999484, NULL, NULL, 'rev_06h1ay4ag57gxvv6pnd1kvxrsc', NULL, 57, CAST('{"revision":"rev_06h1ay4ag57gxvv6pnd1kvxrsc","tokens":13}' AS BLOB)),
  (3, 'job_06h1ay4aq0h78k665ynd4jmarr', 2, 1, 'document-metadata', 5, 3, 1899999999484, NULL, NULL, 'rev_06h1ay4ag57gxvv6pnd1kvxrsc', NULL, 59, CAST('{"revision":"rev_06h1ay4ag57gxvv6pnd1kvxrsc","tokens":1500}' AS BLOB)),
  (4, 'job_06h1ay4arqk9thvygka8n062gc', 2, 1, 'document-split', 5, 3, 1899999999496, NULL, NULL, 'rev_06h1ay4arhhdpr0rr0nbkgwsf8', NULL, 45, CAST('{"revision":"rev_06h1ay4arhhdpr0rr0nbkgwsf8"}' AS BLOB)),
  (5, 'job_06h1ay4as2dxsj0jctr513sz1r', 2, 1, 'document-embed', 5, 3, 1899999999501, NULL, NULL, 'rev_06h1ay4arhhdpr0rr0nbkgwsf8', NULL, 56, CAST('{"revision":"rev_06h1ay4arhhdpr0rr0nbkgwsf8","tokens":9}' AS BLOB)),
  (6, 'job_06h1ay4as19wnbrfq19nbamvww', 2, 1, 'document-metadata', 5, 3, 1899999999501, NULL, NULL, 'rev_06h1ay4arhhdpr0rr0nbkgwsf8', NULL, 59, CAST('{"revision":"rev_06h1ay4arhhdpr0rr0nbkgwsf8","tokens":1500}' AS BLOB)),
  (12, 'job_06h1ay4aw2eg7771g2ppqvws4m', 2, 1, 'echo', 5, 3, 1899999999523, NULL, NULL, 'corr', CAST('{"kind":"done"}' AS BLOB), 10, CAST('"finished"' AS BLOB)),
  (16, 'job_06h1ay4axykcve7y3775k1a2aw', 2, 1, 'broken', 5, 3, 1899999999538, NULL, NULL, NULL, NULL, 6, CAST('"dead"' AS BLOB)),
  (23, 'job_06h1ay4b00m3j5e6m2qh2krxr4', 2, 2, 'echo', 5, 3, 1899999999555, NULL, NULL, NULL, NULL, 9, CAST('"waiting"' AS BLOB)),
  (25, 'job_06h1ay4b0bpjdyv6pyv6jtd7z8', 2, 1, 'echo', 5, 3, 1899999999557, 1900086399557, NULL, NULL, NULL, 11, CAST('"scheduled"' AS BLOB)),
  (27, 'job_06h1ay4b0k6wwn00msd0tdhv60', 2, 2, 'echo', 5, 3, 1899999999559, NULL, 's1', NULL, NULL, 20, CAST('"first of a session"' AS BLOB)),
  (29, 'job_06h1ay4b0mmy20b9fjwvdsaccc', 2, 2, 'echo', 5, 3, 1899999999560, NULL, 's1', NULL, NULL, 21, CAST('"second of a session"' AS BLOB)),
  (31, 'job_06h1ay4b0tpqpqnnahaba7shzw', 2, 1, 'hang', 5, 3, 1899999999561, NULL, NULL, NULL, NULL, 9, CAST('"running"' AS BLOB)),
  (34, 'job_06h1ay4b12z15bnnzqbwy7bkjr', 2, 1, 'limited', 5, 3, 1899999999563, NULL, NULL, NULL, NULL, 9, CAST('"limited"' AS BLOB)),
  (37, 'job_06h1ay4b7a5e7nxqcygrz3kgfm', 2, 1, 'stubborn', 5, 3, 1899999999613, NULL, 's2', NULL, NULL, 11, CAST('"cancelled"' AS BLOB)),
  (40, 'job_06h1ay4bkdg8wvfbsfb6zq9f78', 2, 1, 'echo', 5, 3, 1899999999710, NULL, 's2', NULL, NULL, 21, CAST('"after the cancelled"' AS BLOB)),
  (43, 'job_06h1ay4bm3tc6xth5q0rdqjrx4', 1, 1, 'slow', 5, 3, 1899999999715, NULL, NULL, NULL, NULL, 10, CAST('"spending"' AS BLOB)),
  (44, 'job_06h1ay4c0q444hxskbwbzryxzr', 1, 1, 'slow', 5, 3, 1899999999816, NULL, NULL, NULL, NULL, 16, CAST('"without budget"' AS BLOB)),
  (73, 'job_06h1ay4cm64m2bnxvtg2m8pvsm', 2, 2, 'echo', 5, 3, 1899999999972, NULL, NULL, 'orchestration/caller', NULL, 8, CAST('"called"' AS BLOB)),
  (80, 'job_06h1ay4cnssf6xkqcpkwjkxcdm', 2, 1, 'flaky', 5, 3, 1899999999986, NULL, NULL, NULL, NULL, 9, CAST('"retried"' AS BLOB));

INSERT INTO job_sessions (tenant, queue, session_id, seq) VALUES
  (2, 1, 's2', 40),
  (2, 2, 's1', 27),
  (2, 2, 's1', 29);

INSERT INTO job_session_holds (tenant, queue, session_id, token, ends_at) VALUES
  (2, 1, 's2', 2800024746685668317, 1900000003702);

INSERT INTO outcomes (seq, status, generation, attempt, version, started_at, completed_at, error_class, error_code, error_message, result_size, result) VALUES
  (1, 'succeeded', 1, 1, 3, 1899999999434, 1899999999485, NULL, NULL, NULL, 24, CAST('{"chunks":1,"tokens":13}' AS BLOB)),
  (2, 'succeeded', 1, 1, 3, 1899999999484, 1899999999491, NULL, NULL, NULL, 14, CAST('{"embedded":1}' AS BLOB)),
  (3, 'succeeded', 1, 1, 3, 1899999999484, 1899999999489, NULL, NULL, NULL, 18, CAST('{"described":true}' AS BLOB)),
  (4, 'succeeded', 1, 1, 3, 1899999999496, 1899999999503, NULL, NULL, NULL, 23, CAST('{"chunks":1,"tokens":9}' AS BLOB)),
  (12, 'succeeded', 1, 1, 3, 1899999999523, 1899999999525, NULL, NULL, NULL, 10, CAST('"finished"' AS BLOB)),
  (16, 'failed', 1, 1, 3, 1899999999538, 1899999999539, 'permanent', 'bad_input', CAST('cannot be done' AS BLOB), 0, NULL),
  (37, 'cancelled', 1, 0, 3, 1899999999702, 1899999999712, NULL, NULL, NULL, 0, NULL);

INSERT INTO attempts (seq, generation, number, deployment, started_at, finished_at, outcome, error_class, error_code, error_message, input_tokens, output_tokens, cost, retry_delay) VALUES
  (1, 1, 1, '', 1899999999434, 1899999999485, 'succeeded', NULL, NULL, NULL, 0, 0, 0, NULL),
  (2, 1, 1, 'good', 1899999999484, 1899999999491, 'succeeded', NULL, NULL, NULL, 16, 0, 0, NULL),
  (3, 1, 1, 'good', 1899999999484, 1899999999489, 'succeeded', NULL, NULL, NULL, 233, 12, 0, NULL),
  (4, 1, 1, '', 1899999999496, 1899999999503, 'succeeded', NULL, NULL, NULL, 0, 0, 0, NULL),
  (12, 1, 1, '', 1899999999523, 1899999999525, 'succeeded', NULL, NULL, NULL, 0, 0, 0, NULL),
  (16, 1, 1, '', 1899999999538, 1899999999539, 'failed', 'permanent', 'bad_input', CAST('cannot be done' AS BLOB), 0, 0, 0, NULL),
  (37, 1, 1, '', 1899999999702, 1899999999712, 'cancelled', NULL, NULL, NULL, 0, 0, 0, NULL),
  (80, 1, 1, '', 1899999999986, 1899999999988, 'retried', 'transient', 'error', CAST('not yet' AS BLOB), 0, 0, 0, 3000);

INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries) VALUES
  (2, 498793, 'broken', '', 1, 'failed', 'permanent', 'bad_input', 1, 0),
  (2, 498793, 'document-embed', 'good', 1, 'succeeded', '', '', 1, 0),
  (2, 498793, 'document-metadata', 'good', 1, 'succeeded', '', '', 1, 0),
  (2, 498793, 'document-split', '', 1, 'succeeded', '', '', 2, 0),
  (2, 498793, 'echo', '', 1, 'succeeded', '', '', 1, 0),
  (2, 498793, 'flaky', '', 1, 'retried', 'transient', 'error', 1, 0),
  (2, 498793, 'stubborn', '', 1, 'cancelled', '', '', 1, 0);

INSERT INTO events (seq, number, type, at, status, generation, attempt, error_class, error_code, retry_delay) VALUES
  (16, 3, 'failed', 1899999999539, 'failed', 1, 1, 'permanent', 'bad_input', NULL),
  (16, 4, 'dead_lettered', 1899999999539, 'failed', 1, 1, 'permanent', 'bad_input', NULL),
  (37, 3, 'cancelled', 1899999999712, 'cancelled', 1, 1, NULL, NULL, NULL),
  (80, 3, 'attempt_failed', 1899999999988, 'running', 1, 1, 'transient', 'error', NULL),
  (80, 4, 'retry_scheduled', 1899999999988, 'retrying', 1, 1, NULL, NULL, 3000);

INSERT INTO idempotency (no, tenant, key, body_hash, seq, created_at) VALUES
  (1, 2, 'finished', x'da0aff691e4ce6631387cd7f6c9816d29cb022894882a9fc325f7016aebef8c5', 12, 1899999999523),
  (2, 2, 'dead', x'2b32242702e4cd0bd7c1faf70ed15387f748b8cf5cea52e6e865bc83bf0019b6', 16, 1899999999538),
  (3, 2, 'waiting', x'21639802891a7c8bc99156b14ebbbd921e00fc1291721bcdf1b03977a1364ae5', 23, 1899999999555),
  (4, 2, 'scheduled', x'f228f4aea78ca3df4af9cec8c980c078b0dfb365892c1a236b0fc66b8c67defd', 25, 1899999999557),
  (5, 2, 'first of a session', x'f0001661bd05f6b260a8d708c84d96f2296658e530a62d990a1cdad41141eccf', 27, 1899999999559),
  (6, 2, 'second of a session', x'67dc44af188be3db532f7676ebc3174c68dd6ad76ebcc94889bfdf31eed9e08d', 29, 1899999999560),
  (7, 2, 'running', x'e16197f9a802ac86a29f114fc9d80e2f80b2b18242ad45bec9318daddd00e5d8', 31, 1899999999561),
  (8, 2, 'limited', x'973fc4cff4b42d10019f93cad8849461ed1b19ad7c61883841f94e6dbbbfbeeb', 34, 1899999999563),
  (9, 2, 'cancelled', x'2140eda1c7cf300a59058e4b62720ac4682c4b122f7d4c780cab6d8dc49ed3c3', 37, 1899999999613),
  (10, 2, 'after the cancelled', x'600aeb25d6a07665fd140dc99f6dd10d45e8fa64717847ce9405f37ffe2fe6a4', 40, 1899999999710),
  (11, 2, 'retried', x'73918f12d39453c2966f510300f54244fcce9bab80e9f0022053c1c192820a8d', 80, 1899999999986);

INSERT INTO deployment_states (name, identity, since, state) VALUES
  ('good', 'b26cbaaa77bed956b9e069e9ea45ac6d', 1899999999484, x'07e698e2aba13402000000000000000000000000000002000000000000100d01000000008f1400000000000000000000000000000000000000a08d06a08d06a8c5f7f6bda498030000000000000000000002000000000000000000000000000000000000000000b995e2aba13400000000c095e2aba134b995e2aba1340000000000000000000000000000000001019cdbf8e01a0002000001e7969ed80602000000000002a5dcdab0e4a6b2f3f801be95e2aba134000000000000f3e69db489cae987d701c095e2aba134100d01000000'),
  ('limited', '', 1899999999602, x'07af96e2aba134010000000000000000000000000000010000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001000000000000000000000000000000000000000000000000000000af96e2aba1340000000000000000000000000000000000019cdbf8e01a00010001000000000000'),
  ('stuck', 'b26cbaaa77bed956b9e069e9ea45ac6d', 1899999999812, x'078198e2aba13401000000000000000000000000000001000000000000000000000000000000000000000000000000000000000000000000a08d06a08d06e8c78bf7bda4980300000000000000000000010000000000000000000000000000000000000000000000000000008198e2aba1340000000000000000000000000000000000019ddbf8e01a00010001000000000000');

INSERT INTO slots (seq, token, holder) VALUES
  (31, 3564798845301945631, 'tenant/2'),
  (34, 5123067321949992003, 'deployment/limited'),
  (34, 5123067321949992003, 'tenant/2'),
  (37, 2800024746685668317, 'tenant/2');

INSERT INTO budgets (no, tenant, key_id, daily_tokens, updated_at, set_by, configured) VALUES
  (1, 1, '', 1000, 1899999999410, 'configuration', '{"daily_tokens":1000}');

INSERT INTO spending (budget, period, starts_at, tokens, cost, held_tokens, held_cost, told) VALUES
  (1, 0, TODAY, 0, 0, 506, 0, 0),
  (1, 1, THIS_MONTH, 0, 0, 506, 0, 0);

INSERT INTO budget_holds (seq, token, budget, at, tokens, cost, lost) VALUES
  (43, 6266917164254769949, 1, 1899999999812, 506, 0, 0);

INSERT INTO budget_waits (seq, budget, rank, key_id, until, tokens, cost) VALUES
  (44, 1, 1076, '', TODAY + 86400000, 507, 0);

INSERT INTO bodies (seq, lane, enqueued_at, enqueued_seq, message_id, correlation_id, subject, session_id, content_type, scheduled_at, expires_at, due_at, hops, dead_letter_reason, dead_letter_description, is_text, properties, body) VALUES
  (21, 20, 1899999999539, 20, 'job_06h1ay4axykcve7y3775k1a2aw-4', 'job_06h1ay4axykcve7y3775k1a2aw', 'dead_lettered', NULL, 'application/json', NULL, 1900345599539, 1900345599539, 0, NULL, NULL, 1, CAST('{"attempt":1,"generation":1,"job_id":"job_06h1ay4axykcve7y3775k1a2aw","queue":"default","status":"failed","task":"broken"}' AS BLOB), CAST('{"number":4,"type":"dead_lettered","job_id":"job_06h1ay4axykcve7y3775k1a2aw","correlation_id":"job_06h1ay4axykcve7y3775k1a2aw","at":"2026-11-26T01:29:11.152Z","status":"failed","generation":1,"attempt":1,"error_class":"permanent","error_code":"bad_input","task":"broken","queue":"default","metadata":{},"links":{"job":"/v1/jobs/job_06h1ay4axykcve7y3775k1a2aw","result":"/v1/jobs/job_06h1ay4axykcve7y3775k1a2aw/result"},"timestamp":"2026-11-26T01:29:11.152Z"}' AS BLOB)),
  (22, 16, 1899999999539, 20, 'job_06h1ay4axykcve7y3775k1a2aw-4', 'job_06h1ay4axykcve7y3775k1a2aw', 'dead_lettered', NULL, 'application/json', NULL, 1900345599539, 1900345599539, 0, NULL, NULL, 1, CAST('{"attempt":1,"generation":1,"job_id":"job_06h1ay4axykcve7y3775k1a2aw","queue":"default","status":"failed","task":"broken"}' AS BLOB), CAST('{"number":4,"type":"dead_lettered","job_id":"job_06h1ay4axykcve7y3775k1a2aw","correlation_id":"job_06h1ay4axykcve7y3775k1a2aw","at":"2026-11-26T01:29:11.152Z","status":"failed","generation":1,"attempt":1,"error_class":"permanent","error_code":"bad_input","task":"broken","queue":"default","metadata":{},"links":{"job":"/v1/jobs/job_06h1ay4axykcve7y3775k1a2aw","result":"/v1/jobs/job_06h1ay4axykcve7y3775k1a2aw/result"},"timestamp":"2026-11-26T01:29:11.152Z"}' AS BLOB)),
  (45, 24, 1899999999920, NULL, 'locked', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"kind":"locked"}' AS BLOB), CAST('locked' AS BLOB)),
  (46, 24, 1899999999922, NULL, 'deferred', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"kind":"deferred"}' AS BLOB), CAST('deferred' AS BLOB)),
  (47, 26, 1899999999925, NULL, 'dead', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 'unreadable', 'by hand', 1, CAST('{"kind":"dead"}' AS BLOB), CAST('dead' AS BLOB)),
  (48, 24, 1899999999927, NULL, 'scheduled', NULL, NULL, NULL, NULL, 1900003599927, NULL, 1900003599927, 0, NULL, NULL, 1, CAST('{"kind":"scheduled"}' AS BLOB), CAST('scheduled' AS BLOB)),
  (49, 24, 1899999999929, NULL, 'active', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"kind":"active"}' AS BLOB), CAST('active' AS BLOB)),
  (50, 28, 1899999999932, NULL, 'a1', NULL, NULL, 'a', NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"kind":"a1"}' AS BLOB), CAST('a1' AS BLOB)),
  (51, 28, 1899999999933, NULL, 'a2', NULL, NULL, 'a', NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"kind":"a2"}' AS BLOB), CAST('a2' AS BLOB)),
  (52, 28, 1899999999934, NULL, 'b1', NULL, NULL, 'b', NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"kind":"b1"}' AS BLOB), CAST('b1' AS BLOB)),
  (57, 36, 1899999999942, 56, 'order 1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"amount":20}' AS BLOB), CAST('twenty' AS BLOB)),
  (58, 40, 1899999999942, 56, 'order 1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"RuleName":"amount","amount":20,"size":"large"}' AS BLOB), CAST('twenty' AS BLOB)),
  (60, 36, 1899999999943, 59, 'order 2', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 1, CAST('{"amount":5}' AS BLOB), CAST('five' AS BLOB));

INSERT INTO message_ids (queue, id, seq, forget_at) VALUES
  (6, 'active', 49, 1900000599929),
  (6, 'dead', 47, 1900000599925),
  (6, 'deferred', 46, 1900000599922),
  (6, 'locked', 45, 1900000599920),
  (6, 'scheduled', 48, 1900000599927);

INSERT INTO sessions (no, queue, id, visible, token, locked_until, state) VALUES
  (1, 7, 'a', 1900000299935, 203452326840448720, 1900000299935, CAST('half way' AS BLOB)),
  (2, 7, 'b', 1899999999934, NULL, NULL, NULL);

INSERT INTO rules (queue, name, is_sql, settings, created_at) VALUES
  (4, 'dead_lettered', 0, CAST('{"correlation_filter":{"subject":"dead_lettered"}}' AS BLOB), 1899999999514),
  (5, 'dead_lettered', 0, CAST('{"correlation_filter":{"subject":"dead_lettered"}}' AS BLOB), 1899999999519),
  (9, '$Default', 0, CAST('{}' AS BLOB), 1899999999939),
  (10, 'amount', 1, x'7b2273716c5f66696c746572223a22616d6f756e74205c7530303365203130222c2273716c5f616374696f6e223a225345542073697a65203d20276c6172676527227d', 1899999999941),
  (10, 'urgent', 0, CAST('{"correlation_filter":{"subject":"urgent"}}' AS BLOB), 1899999999941);

INSERT INTO webhooks (tenant, name, queue, url, event_types, concurrency, secrets, created_at, updated_at, tries, failing_since, failures, openings) VALUES
  (2, 'refuses', 5, 'http://127.0.0.1:1/refuses', 'dead_lettered', 4, CAST('[{"secret":"whsec_AEK2eMiRZWUYFNr7z86fr2t14eRn7fu2ZoG4bwcxR/w="}]' AS BLOB), 1899999999519, 1899999999519, 1, 1899999999543, 1, 0),
  (2, 'slow', 4, 'http://127.0.0.1:1/slow', 'dead_lettered', 4, CAST('[{"secret":"whsec_otsBaxH6L4DaM+eq4fcLbDjZBbIS034mBPqF+VLEZuo="}]' AS BLOB), 1899999999514, 1899999999514, 0, NULL, 0, 0);

INSERT INTO webhook_tries (queue, no, message_id, event_type, at, number, status, failure, detail, duration, outcome, next_at) VALUES
  (5, 1, 'job_06h1ay4axykcve7y3775k1a2aw-4', 'dead_lettered', 1899999999542, 1, 500, 'status', 'status 500', 0, 'retry', 1900000004555);

INSERT INTO webhook_deliveries (queue, seq, token, probe) VALUES
  (4, 22, 2369865856914940066, 0);

INSERT INTO orchestration_pools (no, tenant, kind, name) VALUES
  (1, 2, 0, 'waiting'),
  (2, 2, 2, 'suspend'),
  (3, 2, 0, 'trip'),
  (4, 2, 0, 'caller'),
  (5, 2, 1, 'book'),
  (6, 2, 1, 'forebay.task'),
  (7, 2, 1, 'confirm'),
  (8, 2, 0, 'nap'),
  (9, 2, 0, 'retrying'),
  (10, 2, 1, 'unsteady');

INSERT INTO orchestrations (no, tenant, id, execution, name, status, created_at, started_at, completed_at, input, output) VALUES
  (61, 2, 'done', '36523d20-9b5d-4941-86bb-5c73f1c8351d', 'waiting', 'Completed', 1899999999945, 1899999999948, 1899999999950, CAST('"x"' AS BLOB), CAST('"went"' AS BLOB)),
  (64, 2, 'suspended', '2c2fa8f5-0e5c-4888-b9b5-d27c291d9515', 'waiting', NULL, 1899999999951, NULL, NULL, CAST('"x"' AS BLOB), NULL),
  (67, 2, 'trip', 'a06d7890-2074-4d45-a2ce-b554c844c55c', 'trip', NULL, 1899999999965, NULL, NULL, CAST('"Oslo"' AS BLOB), NULL),
  (69, 2, 'caller', '363dd6d6-a097-4d77-bc9f-78472ca62159', 'caller', NULL, 1899999999967, NULL, NULL, CAST('"called"' AS BLOB), NULL),
  (75, 2, 'nap', '8624ca32-94d9-47d9-bdff-e757ac5752b7', 'nap', NULL, 1899999999983, NULL, NULL, CAST('"x"' AS BLOB), NULL),
  (77, 2, 'retrying', '8368f85f-b050-48e5-928e-078211269723', 'retrying', NULL, 1899999999984, NULL, NULL, CAST('"x"' AS BLOB), NULL);

INSERT INTO orchestration_turns (instance, pool, visible, deliveries, number, events, run, status, started_at, updated_at, blobs, custom) VALUES
  (64, 2, 4611686018427387904, 0, 2, 5, 0, 'Suspended', 1899999999952, 1899999999965, 0, NULL),
  (67, 3, 1900003599972, 0, 2, 7, 0, 'Running', 1899999999967, 1899999999972, 0, CAST('"waits for the payment"' AS BLOB)),
  (69, 4, 4611686018427387904, 0, 1, 3, 0, 'Running', 1899999999970, 1899999999970, 0, NULL),
  (75, 8, 1900000003986, 0, 1, 3, 0, 'Running', 1899999999985, 1899999999985, 0, NULL),
  (77, 9, 4611686018427387904, 0, 1, 3, 0, 'Running', 1899999999986, 1899999999986, 0, NULL);

INSERT INTO orchestration_history (instance, turn, count, events) VALUES
  (61, 0, 3, x'1f08ffffffffffffffffff01120c08e7969ed80610f0f1c78b0272040a0212005b08ffffffffffffffffff01120c08e7969ed80610e0e4ef89021a400a0777616974696e671a050a03227822222e0a04646f6e6512260a2433363532336432302d396235642d343934312d383662622d3563373366316338333531642c120c08e7969ed806109ac5ca8b02f2010062190a0d08ff82d1ffaf0710ff93ebdc031202676f2a040a02676f'),
  (61, 1, 3, x'1f08ffffffffffffffffff01120c08e7969ed80610a080ba8c0272040a0212002a08ffffffffffffffffff01120c08e7969ed80610e2f3988b028a010e0a02676f12080a062277656e7422210801120c08e7969ed80610d9acbc8c02f20100220c080112080a062277656e7422'),
  (64, 0, 3, x'1f08ffffffffffffffffff01120c08e7969ed80610ffd5c18d0272040a0212006008ffffffffffffffffff01120c08e7969ed806108afd8e8d021a450a0777616974696e671a050a0322782222330a0973757370656e64656412260a2432633266613866352d306535632d343838382d623962352d6432376332393164393531352c120c08e7969ed80610eed6c48d02f2010062190a0d08ff82d1ffaf0710ff93ebdc031202676f2a040a02676f'),
  (64, 1, 2, x'1b08ffffffffffffffffff01120c08e7969ed80610b58e88940272002f08ffffffffffffffffff01120c08e7969ed80610cadc8f9302aa01130a110a0f666f72207468652075706772616465'),
  (67, 0, 3, x'1f08ffffffffffffffffff01120c08e7969ed8061093a3f3940272040a0212005b08ffffffffffffffffff01120c08e7969ed80610f9e3ee93021a400a04747269701a080a06224f736c6f22222e0a047472697012260a2461303664373839302d323037342d346434352d613263652d62353534633834346335356323120c08e7969ed80610b5e0f59402f2010032100a04626f6f6b1a080a06224f736c6f22'),
  (67, 1, 4, x'1f08ffffffffffffffffff01120c08e7969ed806108fc5eb960272040a0212002c08ffffffffffffffffff01120c08e7969ed80610c78da196023a11120f0a0d224f736c6f20626f6f6b6564222f0801120c08e7969ed80610ee8bf19602f20100321a0a07636f6e6669726d1a0f0a0d224f736c6f20626f6f6b656422310802120c08e7969ed80610ec98f19602f20100621c0a0c08f7b29ed806108fc5eb96021204706169642a060a0470616964'),
  (69, 0, 3, x'1f08ffffffffffffffffff01120c08e7969ed80610c4d294960272040a0212006108ffffffffffffffffff01120c08e7969ed80610b583dd94021a460a0663616c6c65721a0a0a082263616c6c65642222300a0663616c6c657212260a2433363364643664362d613039372d346437372d626339662d37383437326361363231353955120c08e7969ed80610cfd69b9602f2010032420a0c666f72656261792e7461736b1a320a307b227461736b223a226563686f222c22696e707574223a2263616c6c6564222c227175657565223a226c61746572227d'),
  (75, 0, 3, x'1f08ffffffffffffffffff01120c08e7969ed80610b794939d0272040a0212005608ffffffffffffffffff01120c08e7969ed80610cae0a39c021a3b0a036e61701a050a03227822222d0a036e617012260a2438363234636133322d393464392d343764392d626466662d65373537616335373532623723120c08e7969ed80610c4ac969d02f2010062100a0c08eb969ed80610b794939d022200'),
  (77, 0, 3, x'1f08ffffffffffffffffff01120c08e7969ed80610878ad69d0272040a0212006008ffffffffffffffffff01120c08e7969ed806108bc4f49c021a450a087265747279696e671a050a0322782222320a087265747279696e6712260a2438333638663835662d623035302d343865352d393238652d30373832313132363937323324120c08e7969ed8061081d9db9d02f2010032110a08756e7374656164791a050a03227822');

INSERT INTO orchestration_inbox (instance, no, visible, set_at, answer, event) VALUES
  (67, 72, 1900003599972, 1899999999972, 1, x'08ffffffffffffffffff01120c08e7969ed80610b99cf196026a100a0c08f7b29ed806108fc5eb96021002'),
  (75, 79, 1900000003986, 1899999999985, 1, x'08ffffffffffffffffff01120c08e7969ed80610d9b1969d026a0e0a0c08eb969ed80610b794939d02');

INSERT INTO orchestration_activities (instance, event_id, run, pool, turns, visible, token, number, failures, lost, scheduled_at, started_at, job, policy, event) VALUES
  (67, 1, 0, 7, 3, 1900000003973, 3739410390078432544, 1, 0, 0, 1899999999972, 1899999999973, NULL, NULL, x'0801120c08e7969ed80610ee8bf19602f20100321a0a07636f6e6669726d1a0f0a0d224f736c6f20626f6f6b656422'),
  (69, 0, 0, 6, 4, 4611686018427387904, NULL, 1, 0, 0, 1899999999970, 1899999999971, 73, NULL, x'120c08e7969ed80610cfd69b9602f2010032420a0c666f72656261792e7461736b1a320a307b227461736b223a226563686f222c22696e707574223a2263616c6c6564222c227175657565223a226c61746572227d'),
  (77, 0, 0, 10, 9, 1900000002988, NULL, 1, 1, 0, 1899999999986, 1899999999987, NULL, CAST('{"n":3,"f":3000000000,"c":1,"m":60000000000}' AS BLOB), x'120c08e7969ed8061081d9db9d02f2010032110a08756e7374656164791a050a03227822');

INSERT INTO orchestration_attempts (instance, event_id, run, number, pool, started_at, finished_at, outcome, error_type, error, retry_delay) VALUES
  (67, 0, 0, 1, 5, 1899999999969, 1899999999970, 'succeeded', NULL, NULL, NULL),
  (77, 0, 0, 1, 10, 1899999999987, 1899999999988, 'retried', '*errors.errorString', CAST('the other side is not there' AS BLOB), 3000);

INSERT INTO documents (no, tenant, id, latest, created_at) VALUES
  (1, 2, 'lease', 2, 1899999999434);

INSERT INTO document_revisions (no, id, tenant, document, hash, media_type, charset, name, size, content_blob, metadata, uploaded_at, title, language, entities, text_bytes, pages, tokens, chunks, embedded, splitter, split_at, described_at, ready_at, live, dropped) VALUES
  (1, 'rev_06h1ay4ag57gxvv6pnd1kvxrsc', 2, 1, x'818cc456169b709c3501a2f8e2fe7014f17f8d124d0a547a9de34cbe6687c5bb', 'text/markdown', '', 'lease.md', 63, 't/2/rev_06h1ay4ag57gxvv6pnd1kvxrsc/content', CAST('{"shelf":"3"}' AS BLOB), 1899999999434, 'Lease', '', CAST('[]' AS BLOB), 63, 0, 13, 1, 1, 7456465787556363360, 1899999999484, 1899999999487, 1899999999487, 1, 0),
  (2, 'rev_06h1ay4arhhdpr0rr0nbkgwsf8', 2, 1, x'b940506c560bd55d7eede881f6176c723c952e5b2d82cb291545b0ea877432fc', 'text/markdown', '', 'lease.md', 39, 't/2/rev_06h1ay4arhhdpr0rr0nbkgwsf8/content', NULL, 1899999999496, 'Lease', '', NULL, 39, 0, 9, 1, 0, 693557610553140332, 1899999999501, NULL, NULL, NULL, 0);

INSERT INTO document_jobs (seq, revision, branch, first, last, done) VALUES
  (1, 1, 'split', 0, 0, 1),
  (2, 1, 'embedding', 0, 0, 1),
  (3, 1, 'metadata', 0, 0, 1),
  (4, 2, 'split', 0, 0, 1),
  (5, 2, 'embedding', 0, 0, 0),
  (6, 2, 'metadata', 0, 0, 0);

INSERT INTO chunks (no, tenant, revision, number, start_byte, end_byte, start_char, end_char, page, tokens, headings, text) VALUES
  (1, 2, 1, 0, 0, 62, 0, 62, 0, 13, CAST('["Lease"]' AS BLOB), '# Lease

The harbour board pays for repairs of the breakwater.'),
  (2, 2, 2, 0, 0, 38, 0, 38, 0, 9, CAST('["Lease"]' AS BLOB), '# Lease

The tenant pays for lanterns.');

INSERT INTO chunk_vectors (chunk, vector) VALUES
  (1, x'00000000000000000000000000000000000000000000000000000000c341b53d6901913c00000000000000000000000000000000c341b53d0000000000000000000000000000000000000000000000000000000000000000220c973ec341b5bdc341b53dc341b5bd0000000000000000000000000000000000000000000000000000000000000000220c97be0000000000000000c341b53d00000000c341b53dc341b5bd0000000000000000000000000000000004adf1bd000000000000000000000000c341b5bd00000000220c973e000000000000000000000000000000001d8259bc0000000000000000000000000000000000000000c341b53d00000000000000000000000000000000c341b53d00000000c341b53dc341b53d00000000000000000000000000000000935cc4be0000000000000000000000001d82d9bc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001d82d93c00000000c341b5bd0000000000000000000000000000000000000000c341b5bdc341b5bd00000000cb04db3e00000000000000000000000000000000000000000000000000000000c341b53d04adf13d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001d82593c0000000000000000c341b53d0000000000000000000000000000000033d89d3e00000000000000000000000000000000c341b5bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000004adf1bdc341b53d00000000c341b53d00000000000000000000000000000000000000006901913c6901913c1d8259bc00000000000000000000000000000000000000000000000000000000000000000000000000000000c341b5bd000000001d82d93c0000000000000000c341b53dc341b5bdc34135bdc341b5bdc341b53d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000c341b5bd0000000000000000000000000000000004adf13d00000000c341b5bd000000000000000000000000000000000000000000000000000000000000000004adf1bd00000000000000001d8259bc00000000000000000000000000000000000000000000000000000000000000000000000000000000000000001d82d93d00000000000000000000000000000000c341b53d0000000000000000');

INSERT INTO chunk_codes (revision, chunk, code) VALUES
  (1, 1, x'3fc89e3d4c635e0f9422e202c60f0fab96e229955f9a49a8779582c53341d8f7bf7538a4');

INSERT INTO document_indexes (tenant, dimensions) VALUES
  (2, 256);
