-- One row. Production leaves it alone and time is the database's own; a database marked as having a
-- virtual clock (tests, demonstrations) is governed by virtual_now everywhere, the trigger included.
CREATE TABLE cronless.clock (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    virtual_now timestamptz
);
INSERT INTO cronless.clock DEFAULT VALUES;

CREATE FUNCTION cronless.clock_now() RETURNS timestamptz
LANGUAGE sql STABLE
AS $$ SELECT coalesce((SELECT virtual_now FROM cronless.clock), now()) $$;
