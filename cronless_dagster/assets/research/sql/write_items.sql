-- The items of an account's sources, all at once: the same again writes nothing, so that a refresh can be repeated
-- and two at once count each item for one of them. In one order, so that they never wait for each other. Whether a
-- row is new is told by changed_at, which only an update sets.
INSERT INTO cronless_assets.item AS item
    (account_id, source_id, key, content_hash, title, url, summary, author, published_at, fetched_from, first_seen_at)
SELECT :account_id, found.source_id, found.key, found.content_hash, found.title, found.url, found.summary,
       found.author, found.published_at, found.fetched_from, :now
FROM unnest(
    CAST(:source_ids AS uuid[]), CAST(:keys AS text[]), CAST(:hashes AS text[]), CAST(:titles AS text[]),
    CAST(:urls AS text[]), CAST(:summaries AS text[]), CAST(:authors AS text[]), CAST(:published AS timestamptz[]),
    CAST(:fetched_from AS text[])
) AS found (source_id, key, content_hash, title, url, summary, author, published_at, fetched_from)
ORDER BY found.source_id, found.key
ON CONFLICT (source_id, key) DO UPDATE
SET content_hash = excluded.content_hash, title = excluded.title, url = excluded.url, summary = excluded.summary,
    author = excluded.author, published_at = excluded.published_at, fetched_from = excluded.fetched_from,
    changed_at = excluded.first_seen_at
WHERE item.content_hash <> excluded.content_hash
RETURNING changed_at IS NULL AS is_new
