"""Agent presets of sandboxes, and which of them a node can make ready."""

SCHEMA = """
ALTER TABLE sandboxes
    ADD COLUMN preset text,
    ADD COLUMN preset_state text CHECK (preset_state IN ('ready', 'failed')),
    ADD COLUMN preset_error text,
    ADD CHECK (preset IS NOT NULL OR preset_state IS NULL),
    ADD CHECK ((preset_state IS NOT DISTINCT FROM 'failed') = (preset_error IS NOT NULL));
ALTER TABLE nodes ADD COLUMN presets jsonb NOT NULL DEFAULT '[]';
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the columns."""
    db.execute_sql(SCHEMA)
