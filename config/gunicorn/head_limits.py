"""The most that gunicorn takes of a request's head; `app/http/bodies/` limits bodies."""

# Large enough for a bearer token, small enough that a header cannot be a memory attack.
limit_request_line = 8190
limit_request_fields = 100
