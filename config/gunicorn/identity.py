"""gunicorn configuration of the identity process."""
from config.bind import bind_of
from config.gunicorn.every_process import *  # noqa: F401,F403
from config.settings import get_settings

bind = bind_of(get_settings().auth_bind, get_settings().auth_url)
workers = 1
# Those who sign in hold 34 of them at most, since few passwords are hashed at once
# (services/accounts/passwords.py); the others always find a thread.
threads = 48
proc_name = "svc-identity"
