-- Removes what was noted for parts of the id space that nobody serves any more. The latest tick's note stays, however
-- old: it says since when nothing ticks. Without an index: the parts that are noted are bounded, every tick reads them
-- all, and an index on updated_at would make each note a write to it.
DELETE FROM cronless.progress
WHERE ctid = ANY (ARRAY(
    SELECT noted.ctid FROM cronless.progress AS noted
    WHERE (noted.key LIKE 'tick:%' OR noted.key LIKE 'whole:%' OR noted.key LIKE 'rescue:%')
      AND noted.updated_at < :before
      AND noted.updated_at < (SELECT max(tick.updated_at) FROM cronless.progress AS tick WHERE tick.key LIKE 'tick:%')
    LIMIT :most FOR UPDATE SKIP LOCKED))
