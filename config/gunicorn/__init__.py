"""How gunicorn runs the HTTP processes: a file for each, what they share, how large the head of a
request may be, and what gunicorn answers by itself."""
