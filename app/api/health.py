"""Whether this process can do its work (contract, Deploy surface: orchestrator health check)."""
from flask import Blueprint

from app.http.credentials import PUBLIC
from app.http.route import route
from app.schemas.health import HealthAnswer
from models.database import connection, database

routes = Blueprint("health", __name__)


@route(routes, "GET /health", accepts=(PUBLIC,), answers=HealthAnswer, errors=(503,))
def health() -> None:
    """200 while the database answers, otherwise 503; the broker may be away without harm."""
    with connection():
        database.execute_sql("SELECT 1")
