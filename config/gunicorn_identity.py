"""gunicorn configuration of the identity process; password hashing is slow on purpose, so few
threads each."""
from config.bind import bind_of
from config.gunicorn_base import *  # noqa: F401,F403
from config.settings import get_settings

bind = bind_of(get_settings().auth_bind, get_settings().auth_url)
workers = 1
threads = 8
proc_name = "svc-identity"
