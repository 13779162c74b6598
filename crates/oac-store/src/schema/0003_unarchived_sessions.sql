-- Resets, and a Core that takes over, look for the Sessions that are not archived among many that are.
CREATE INDEX sessions_unarchived ON sessions (id) WHERE archived_at IS NULL;
