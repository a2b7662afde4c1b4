"""Flower's options: it shows queues and workers to operators, on loopback and behind a password, its metrics too.

Flower serves everything to everybody when no password is set, so a missing one stops it here.
"""
from config.settings import SettingsError, get_settings

if ":" not in get_settings().flower_basic_auth:
    raise SettingsError("SVC_FLOWER_BASIC_AUTH must be user:password. See config/example.env.")

address = "127.0.0.1"
port = get_settings().flower_port
basic_auth = [get_settings().flower_basic_auth]
persistent = False
max_tasks = 10_000
