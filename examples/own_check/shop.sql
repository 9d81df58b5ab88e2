-- A product's own table, made up: customers with integer ids, some on a trial.
CREATE SCHEMA shop;

CREATE TABLE shop.customer (
    id bigint PRIMARY KEY,
    trial_ends_at timestamptz
);

-- What a mailer of the product's own sends and deletes. Nothing in it keeps a mail from being written twice:
-- that is the check's promise.
CREATE TABLE shop.mail (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES shop.customer,
    about text NOT NULL
);

-- The part of the id space that a call asks about becomes a range of this index.
CREATE INDEX customer_place ON shop.customer (cronless.place_of(id::text)) WHERE trial_ends_at IS NOT NULL;
