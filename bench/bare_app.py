"""The floor of an API read: one Flask route that reads one row through peewee, without
authentication or rules."""
from flask import Flask, abort

from config.settings import get_settings
from models.database import connect, connection
from models.sandboxes import Sandbox

app = Flask(__name__)
connect(get_settings().database_url, pool_size=4, application="bench-floor")


@app.get("/<sandbox_id>")
def read(sandbox_id: str) -> dict[str, str]:
    """The row's id and status."""
    with connection():
        row = Sandbox.get_or_none(Sandbox.id == sandbox_id)
    if row is None:
        abort(404)
    return {"id": row.id, "status": row.status}
