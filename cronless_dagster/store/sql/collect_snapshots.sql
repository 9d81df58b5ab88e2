-- Removes snapshots of windows that began before an instant, the oldest first; as collect_marks.
DELETE FROM cronless.health_snapshot
WHERE ctid = ANY (ARRAY(
    SELECT taken.ctid FROM cronless.health_snapshot AS taken
    WHERE taken.window_start < :before
    ORDER BY taken.window_start, taken.job_type LIMIT :most FOR UPDATE SKIP LOCKED))
