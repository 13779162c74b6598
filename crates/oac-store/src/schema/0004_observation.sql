-- What became of the latest observation of an allocation.
ALTER TABLE allocations ADD COLUMN observation text;
