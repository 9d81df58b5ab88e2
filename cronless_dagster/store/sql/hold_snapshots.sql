-- Takes the job types for this transaction that nobody else is taking a snapshot of: a doubled call leaves them to the
-- first instead of counting the same rows beside it.
SELECT asked.name
FROM unnest(CAST(:names AS text[])) AS asked (name)
WHERE pg_try_advisory_xact_lock(hashtextextended(
    'cronless snapshot ' || asked.name, CAST(extract(epoch FROM CAST(:window AS timestamptz)) AS bigint)))
