"""The HTTP processes: each a Flask factory over the same services."""
