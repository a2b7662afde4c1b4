"""The gunicorn worker of the HTTP processes: what happens to a connection before Flask sees a
request."""
