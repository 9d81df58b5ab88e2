-- What an account's items come to. The totals are counted here, the weeks by pandas.
INSERT INTO cronless_assets.account_summary
    (account_id, refreshed_at, items, new_items, changed_items, sources, failed_sources, latest_published_at, weekly)
SELECT :account_id, :now, item.items, :new_items, :changed_items, source.sources, source.failed, item.latest,
       CAST(:weekly AS jsonb)
FROM (
    SELECT count(*) AS items, max(published_at) AS latest FROM cronless_assets.item WHERE account_id = :account_id
) AS item, (
    SELECT count(*) AS sources, count(*) FILTER (WHERE status = 'failed') AS failed
    FROM cronless_assets.source WHERE account_id = :account_id
) AS source
ON CONFLICT (account_id) DO UPDATE
SET refreshed_at = excluded.refreshed_at, items = excluded.items, new_items = excluded.new_items,
    changed_items = excluded.changed_items, sources = excluded.sources, failed_sources = excluded.failed_sources,
    latest_published_at = excluded.latest_published_at, weekly = excluded.weekly
RETURNING items
