"""Whether this process can do its work (contract, Deploy surface: orchestrator health check)."""
from flask import Blueprint, Response, jsonify

from app.http.answers import answers
from app.http.credentials import PUBLIC, accepts
from app.schemas.answers import answer_of
from app.schemas.health import HealthAnswer
from models.database import connection, database

routes = Blueprint("health", __name__)


@routes.get("/health")
@accepts(PUBLIC)
@answers(200, HealthAnswer, errors=(503,))
def health() -> Response:
    """200 while the database answers, otherwise 503; the broker may be away without harm."""
    with connection():
        database.execute_sql("SELECT 1")
    return jsonify(answer_of(HealthAnswer).dump(None))
