"""How gunicorn runs the HTTP processes: a file for each, what they share, and how requests are
framed."""
