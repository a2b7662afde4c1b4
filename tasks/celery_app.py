"""The Celery app of the control plane: worker of the `control` queue, beat, Flower."""
from celery import Celery
from celery.signals import setup_logging

from config.celery import celery_options
from config.logging import configure
from config.settings import get_settings
from tasks.schedule import beat_schedule

settings = get_settings()
app = Celery("svc-control", include=["tasks.control"])
app.conf.update(celery_options(settings))
app.conf.beat_schedule = beat_schedule(settings)
app.conf.beat_scheduler = "tasks.scheduler:Scheduler"
app.conf.beat_schedule_filename = str(settings.data_dir / "beat" / "schedule")
# Beat writes its clock to disk at most this often (s); losing it costs nothing, every tick is a
# sweep over due columns.
app.conf.beat_sync_every = 0
app.conf.beat_max_loop_interval = 1


@setup_logging.connect  # type: ignore[untyped-decorator]
def _logging(**_: object) -> None:
    configure(settings.log_level)
