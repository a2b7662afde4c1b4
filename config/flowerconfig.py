"""Flower's options: it shows queues and workers to operators, on loopback and behind a password,
its metrics too.

Flower serves everything to everybody when no password is set, so a missing one stops it here; and
it serves /metrics to everybody even then, so that page is given the check that its other pages
have.
"""
from flower.views.monitor import Metrics
from tornado.web import authenticated

from config.settings import SettingsError, get_settings

if ":" not in get_settings().flower_basic_auth:
    raise SettingsError("SVC_FLOWER_BASIC_AUTH must be user:password. See config/example.env.")
Metrics.get = authenticated(Metrics.get)

address = "127.0.0.1"
port = get_settings().flower_port
basic_auth = [get_settings().flower_basic_auth]
persistent = False
max_tasks = 10_000
