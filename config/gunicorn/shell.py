"""gunicorn configuration of the shell process: one process of many threads, two for each open
shell (the other one is the WebSocket's own)."""
from config.gunicorn.every_process import *  # noqa: F401,F403
from config.settings import get_settings

# For requests that are refused, beside the shells.
_SPARE_THREADS = 50
worker_class = "app.shell.worker.ShellWorker"
bind = f"127.0.0.1:{get_settings().shell_port}"
workers = 1
threads = get_settings().shell_limit + _SPARE_THREADS
# A connection that the API has handed over is to hear of no other route afterwards.
keepalive = 0
proc_name = "svc-shell"
