"""Whether this process can do its work (contract, Deploy surface: orchestrator health check); a
stranger is told no more than that."""
from flask import Blueprint

from app.http.credentials import PUBLIC
from app.http.route import route
from app.schemas.answers import HealthAnswer
from models.database import DatabaseFailed, connection, database
from services.errors import Unavailable

routes = Blueprint("health", __name__)


@route(routes, "GET /health", accepts=(PUBLIC,), answers=HealthAnswer, errors=(503,))
def health() -> None:
    """200 while this process can do its work, otherwise 503."""
    # The broker may be away without harm.
    try:
        with connection():
            database.execute_sql("SELECT 1")
    except DatabaseFailed as error:
        raise Unavailable("down") from error
