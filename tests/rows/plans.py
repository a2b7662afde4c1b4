"""How Postgres answers a statement: its plan, what of the tables it visits, and what it reads."""
import json

from models.database import connection, database


def explain(text, values, *, run=True):
    """The plan of a statement; unless it is not to `run`, with what it has visited and read."""
    options = "ANALYZE, BUFFERS, FORMAT JSON" if run else "FORMAT JSON"
    with connection():
        found = database.execute_sql(f"EXPLAIN ({options}) {text}", values).fetchone()[0]
    return (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]


def nodes(plan):
    """The node of a plan and all nodes below it."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def buffers(plan):
    """How many pages were read."""
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
