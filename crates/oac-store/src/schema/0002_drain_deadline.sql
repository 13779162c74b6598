-- When a drain's deadline was declared passed: its entry in the audit log is written with it, once.
ALTER TABLE nodes ADD COLUMN drain_deadline_passed_at bigint;
