-- What a tenant, or one of its API keys, may spend in a calendar day and a calendar month of UTC. Costs
-- are nano-dollars; NULL: no limit.
CREATE TABLE budgets (
  no             INTEGER PRIMARY KEY,
  tenant         INTEGER NOT NULL,
  key_id         TEXT NOT NULL,    -- empty: the tenant's own
  daily_tokens   INTEGER,
  daily_cost     INTEGER,
  monthly_tokens INTEGER,
  monthly_cost   INTEGER,
  updated_at     INTEGER NOT NULL,
  set_by         TEXT NOT NULL,    -- who set it last: an actor, or "configuration"
  configured     TEXT,             -- what the configuration said when it was last heard; NULL: nothing
  UNIQUE (tenant, key_id)
) STRICT;

CREATE INDEX budgets_key ON budgets (key_id);

-- What was used of a budget in a period, and what is held for calls that are not over.
CREATE TABLE spending (
  budget      INTEGER NOT NULL,
  period      INTEGER NOT NULL,            -- 0: a day, 1: a month
  starts_at   INTEGER NOT NULL,
  tokens      INTEGER NOT NULL,
  cost        INTEGER NOT NULL,
  held_tokens INTEGER NOT NULL,
  held_cost   INTEGER NOT NULL,
  told        INTEGER NOT NULL,            -- bits: 1, that 80 % are used; 2, that it is exhausted
  PRIMARY KEY (budget, period, starts_at)
) STRICT, WITHOUT ROWID;

-- What a delivery may use at most. One that is lost has been booked as used, until somebody knows better.
-- Budget 0 is the cost limit of the job itself.
CREATE TABLE budget_holds (
  seq    INTEGER NOT NULL,
  token  INTEGER NOT NULL,
  budget INTEGER NOT NULL,
  at     INTEGER NOT NULL,                 -- its periods are those of this time
  tokens INTEGER NOT NULL,
  cost   INTEGER NOT NULL,
  lost   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (seq, token, budget)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_holds_budget ON budget_holds (budget);

-- Jobs that wait for a budget, and what they need of it. Their messages stay in their lanes, but are not
-- visible until the period ends. What is not true any more of a row is seen by its message.
CREATE TABLE budget_waits (
  seq    INTEGER PRIMARY KEY,
  budget INTEGER NOT NULL,
  rank   INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  until  INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  cost   INTEGER NOT NULL
) STRICT;
CREATE INDEX budget_waits_order ON budget_waits (budget, rank, seq);

-- The key that submitted a job, if that key had a budget.
ALTER TABLE jobs ADD COLUMN key_id TEXT;
