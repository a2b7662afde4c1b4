"""What the gunicorn processes share: threads, graceful ends, logs, and what they answer with."""
import gc
import importlib
import os
from typing import Any

from config.gunicorn import answer_pieces, error_answers
from config.gunicorn.head_limits import *  # noqa: F401,F403
from config.logging import logging_config
from config.settings import get_settings

answer_pieces.install()
error_answers.install()
worker_class = "app.http.server.worker.PatientWorker"
# Who we are. gunicorn looks when it is imported, which in a one-box stack is before we became it.
user, group = os.geteuid(), os.getegid()
# Connections of each process, those included that are only being collected or kept.
worker_connections = 4000
keepalive = 30
timeout = 120
graceful_timeout = 20
preload_app = False
control_socket_disable = True
accesslog = "-"
logger_class = "config.gunicorn.access_log.AccessLogger"
logconfig_dict = logging_config(get_settings().log_level)
logconfig_dict["handlers"]["held"] = {"class": "config.gunicorn.held_lines.HeldLines",
                                      "formatter": "line"}
logconfig_dict["loggers"]["gunicorn.access"] |= {"handlers": ["held"], "propagate": False}


def on_starting(server: Any) -> None:
    """Load the app's code, once, in the process that workers are forked from: they share its
    memory, and one that ended is replaced without loading it again. The app itself, with its
    connections and threads, each worker makes after it was forked. Code is no garbage: nobody
    looks for some meanwhile, since requests wait for the start after a crash."""
    gc.disable()
    try:
        importlib.import_module(server.app.app_uri.partition(":")[0])
    finally:
        gc.enable()
    gc.freeze()
