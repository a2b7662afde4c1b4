"""gunicorn configuration of the API process: threads, because a request waits on rows and guests,
not on the CPU."""
from config.bind import bind_of
from config.gunicorn.every_process import *  # noqa: F401,F403
from config.settings import get_settings

worker_class = "app.api.worker.ApiWorker"
bind = bind_of(get_settings().api_bind, get_settings().api_url)
workers = get_settings().api_workers
threads = get_settings().api_threads
proc_name = "svc-api"
