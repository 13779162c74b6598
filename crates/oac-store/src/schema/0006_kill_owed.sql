-- An operator discarded the compute while its node was away: should that return, it is still killed.
ALTER TABLE computes ADD COLUMN kill_owed boolean NOT NULL DEFAULT FALSE;

CREATE INDEX computes_kill_owed ON computes (allocation_id) WHERE kill_owed;
