-- The slots of a node are counted with every placement there: the suspended sandboxes without reading the others.
CREATE INDEX allocations_suspended ON allocations (node_id) WHERE compute_phase = 'suspended' AND released_at IS NULL;
