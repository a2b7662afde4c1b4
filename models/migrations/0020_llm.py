"""Calls of the LLM proxy, their tallies and switches, and who has an address of a node."""

SCHEMA = """
CREATE TABLE llm_calls (
    id bigserial PRIMARY KEY,
    sandbox_id text NOT NULL,
    owner_id text NOT NULL,
    gateway text NOT NULL,
    protocol text NOT NULL,
    upstream text NOT NULL,
    model_asked text NOT NULL,
    model_used text NOT NULL,
    price jsonb,
    reserved_tokens bigint NOT NULL,
    reserved_cost numeric(38) NOT NULL,
    estimated_input bigint NOT NULL,
    started_at timestamptz NOT NULL,
    first_byte_at timestamptz,
    seen_at timestamptz NOT NULL,
    ended_at timestamptz,
    status integer,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost numeric(38),
    complete boolean,
    swept boolean NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX llm_calls_open ON llm_calls (owner_id) WHERE ended_at IS NULL;
CREATE INDEX llm_calls_ended ON llm_calls (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE llm_tallies (
    id bigserial PRIMARY KEY,
    owner_id text NOT NULL,
    sandbox_id text NOT NULL,
    day date NOT NULL,
    model text NOT NULL,
    calls bigint NOT NULL,
    incomplete_calls bigint NOT NULL,
    unpriced_calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost numeric(38) NOT NULL,
    is_sum boolean NOT NULL DEFAULT false
);
CREATE INDEX llm_tallies_owner ON llm_tallies (owner_id, sandbox_id, day);
CREATE INDEX llm_tallies_day ON llm_tallies (day) WHERE sandbox_id = '';
CREATE INDEX llm_tallies_fresh ON llm_tallies (owner_id) WHERE NOT is_sum;
CREATE TABLE llm_switches (
    scope text NOT NULL,
    name text NOT NULL,
    reason text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (scope, name)
);
CREATE INDEX sandboxes_address ON sandboxes (node_id, vm_ip) WHERE vm_ip <> '';
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add tables and index."""
    db.execute_sql(SCHEMA)
