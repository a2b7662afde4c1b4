"""The memory images of machine shapes are called warm images, also in the database."""

SCHEMA = """
ALTER TABLE bakes RENAME TO warm_images;
ALTER INDEX bakes_pkey RENAME TO warm_images_pkey;
ALTER INDEX bakes_due RENAME TO warm_images_due;
"""


def up(migrator, db):  # type: ignore[no-untyped-def]
    """Rename the table of bakes."""
    db.execute_sql(SCHEMA)
