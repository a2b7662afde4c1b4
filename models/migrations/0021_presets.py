"""Warm images with the agent presets, beside those without."""

SCHEMA = """
ALTER TABLE warm_images ADD COLUMN presets boolean NOT NULL DEFAULT false;
ALTER TABLE warm_images DROP CONSTRAINT warm_images_pkey;
ALTER TABLE warm_images ADD CONSTRAINT warm_images_pkey
    PRIMARY KEY (node_id, vcpus, mem_mb, presets);
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Add the column and put it into the key."""
    db.execute_sql(SCHEMA)
