"""`python -m config.celery_command -A APP worker|beat|flower OPTIONS`: a command of Celery alone.

The program `celery` loads a shell, monitors and Flower before it becomes any of them.
"""
import click
from celery.app.utils import find_app
from celery.bin.base import CLIContext
from celery.bin.beat import beat
from celery.bin.worker import worker


class _Commands(click.Group):
    """Celery's own commands, and Flower's, which is loaded for nothing else."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name != "flower":
            return super().get_command(ctx, cmd_name)
        from flower.command import flower
        return flower


@click.group(cls=_Commands)
@click.option("-A", "--app", required=True, help="The module of the Celery app.")
@click.pass_context
def main(context: click.Context, app: str) -> None:
    """Run a process of a Celery app; the options are Celery's, or Flower's."""
    context.obj = CLIContext(app=find_app(app), no_color=True, workdir=None)


main.add_command(worker)
main.add_command(beat)

if __name__ == "__main__":
    main()
