-- Which of the job types have no snapshot of a window yet: the question of most calls, and the answer is none.
SELECT asked.name
FROM unnest(CAST(:names AS text[])) AS asked (name)
WHERE NOT EXISTS (SELECT FROM cronless.health_snapshot AS taken
                  WHERE taken.window_start = :window AND taken.job_type = asked.name)
ORDER BY asked.name
