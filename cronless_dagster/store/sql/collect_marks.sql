-- Removes what checks noted as done before an instant, the oldest first; what another call is removing is left to it.
DELETE FROM cronless.check_done
WHERE ctid = ANY (ARRAY(
    SELECT done.ctid FROM cronless.check_done AS done
    WHERE done.over_at < :before
    ORDER BY done.over_at LIMIT :most FOR UPDATE SKIP LOCKED))
