"""`python -m config.celery_command -A APP worker|beat OPTIONS`: two commands of Celery alone.

The program `celery` loads a shell, monitors and Flower before it becomes a worker.
"""
import click
from celery.app.utils import find_app
from celery.bin.base import CLIContext
from celery.bin.beat import beat
from celery.bin.worker import worker


@click.group()
@click.option("-A", "--app", required=True, help="The module of the Celery app.")
@click.pass_context
def main(context: click.Context, app: str) -> None:
    """Run a process of a Celery app; the options are Celery's."""
    context.obj = CLIContext(app=find_app(app), no_color=True, workdir=None)


main.add_command(worker)
main.add_command(beat)

if __name__ == "__main__":
    main()
