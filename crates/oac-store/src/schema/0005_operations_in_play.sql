-- The latest operation of a kind is found without reading those before it.
CREATE INDEX operations_latest ON operations (allocation_id, kind, created_at);
