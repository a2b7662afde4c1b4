"""Events, their deliveries to webhook receivers, and the ledger of attempts."""

SCHEMA = """
CREATE TABLE events (
    id text PRIMARY KEY,
    type text NOT NULL,
    owner_id text NOT NULL,
    subject text NOT NULL,
    occurred_at timestamptz NOT NULL,
    body text NOT NULL,
    routed_at timestamptz
);
CREATE INDEX events_unrouted ON events (occurred_at) WHERE routed_at IS NULL;
CREATE INDEX events_subject ON events (subject, occurred_at);
CREATE INDEX events_time ON events (occurred_at);
CREATE TABLE deliveries (
    id bigserial PRIMARY KEY,
    event_id text NOT NULL REFERENCES events ON DELETE CASCADE,
    receiver text NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'sending', 'delivered', 'dropped')),
    redelivery boolean NOT NULL,
    attempts integer NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    claimed_by text,
    lease_until timestamptz,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    CHECK ((state = 'sending') = (lease_until IS NOT NULL))
);
CREATE INDEX deliveries_due ON deliveries (receiver, next_attempt_at) WHERE state = 'pending';
CREATE INDEX deliveries_sending ON deliveries (lease_until) WHERE state = 'sending';
CREATE INDEX deliveries_event ON deliveries (event_id);
CREATE TABLE delivery_attempts (
    id bigserial PRIMARY KEY,
    delivery_id bigint NOT NULL REFERENCES deliveries ON DELETE CASCADE,
    number integer NOT NULL,
    sender text NOT NULL,
    started_at timestamptz NOT NULL,
    duration_ms double precision,
    outcome text NOT NULL CHECK (outcome IN ('under_way', 'delivered', 'failed', 'unknown')),
    http_status integer,
    reason text,
    UNIQUE (delivery_id, number)
);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Create the ledger of events."""
    db.execute_sql(SCHEMA)
