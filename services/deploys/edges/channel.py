"""The channel on which edges hear that what they serve has changed."""
from models.database import database

CHANNEL = "deploys"


def notify() -> None:
    """Tell the edges, once the current transaction commits, that something has changed."""
    database.execute_sql("SELECT pg_notify(%s, '')", (CHANNEL,))
