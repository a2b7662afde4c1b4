"""What an operator does with webhooks: look at the ledger, send again, try the receivers."""
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import click

from app.operator.output import as_json, print_json
from config.settings import get_settings
from models.states import OPEN_DELIVERY_STATES, DeliveryState
from services.events import ledger, webhook_resends
from services.events.ledger import Filter, History
from services.events.receivers import WebhookOptions, webhook_options
from services.events.record import rfc3339
from services.events.types import EventType

_STATE = click.Choice([state.value for state in DeliveryState])


class _Moment(click.ParamType):
    """An RFC 3339 time; one without a zone is UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> datetime:
        try:
            moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError:
            self.fail(f"{value} is not a time such as 2026-01-31T12:00:00Z", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _which(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which events are meant."""
    for option in (
        click.option("--until", type=_Moment(), help="Events before this time."),
        click.option("--since", type=_Moment(), help="Events from this time on."),
        click.option("--type", "kind", type=click.Choice([kind.value for kind in EventType])),
        click.option("--owner", help="User id of the owner."),
        click.option("--subject", help="Id of the sandbox, or slug of the deploy."),
        click.option("--receiver", help="Name of the receiver, as the ledger shows it."),
    ):
        command = option(command)
    return command


@click.group()
def webhooks() -> None:
    """Look at events and their deliveries, send again, try the receivers."""


@webhooks.command("list")
@_which
@click.option("--state", type=_STATE, help="Events with a delivery in this state.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@as_json
def list_events(limit: int, state: str | None, kind: str | None, owner: str | None, machine: bool,
                **rest: Any) -> None:
    """Events, newest first, and what became of their deliveries."""
    wanted = Filter(type=kind, owner_id=owner, state=DeliveryState(state) if state else None,
                    **rest)
    found = ledger.list_events(wanted, limit)
    if machine:
        print_json([_fields(history) for history in found])
        return
    for history in found:
        click.echo(_line(history))


def _fields(history: History) -> dict[str, Any]:
    event = history.event
    return {
        "id": event.id, "type": event.type, "subject": event.subject, "owner_id": event.owner_id,
        "occurred_at": event.occurred_at,
        "deliveries": [{"receiver": row.receiver, "state": row.state, "attempts": row.attempts}
                       for row, _ in history.deliveries],
    }


def _line(history: History) -> str:
    event = history.event
    ends = " ".join(f"{row.receiver}={row.state}/{row.attempts}" for row, _ in history.deliveries)
    return f"{rfc3339(event.occurred_at)} {event.id} {event.type} {event.subject} {ends or '-'}"


@webhooks.command("show")
@click.argument("event_id")
def show(event_id: str) -> None:
    """One event: its body as it is sent, and every attempt."""
    history = ledger.get_event(event_id)
    click.echo(history.event.body)
    for delivery, attempts in history.deliveries:
        again = " (again)" if delivery.redelivery else ""
        due = (
            f", next attempt {rfc3339(delivery.next_attempt_at)}"
            if delivery.state == DeliveryState.PENDING
            else ""
        )
        click.echo(f"delivery {delivery.id}{again} to {delivery.receiver}: {delivery.state}{due}")
        for attempt in attempts:
            took = "" if attempt.duration_ms is None else f" in {attempt.duration_ms:.0f} ms"
            why = attempt.reason or (f"HTTP {attempt.http_status}" if attempt.http_status else "")
            click.echo(
                f"  {attempt.number}. {rfc3339(attempt.started_at)} {attempt.outcome}{took} {why}"
                .rstrip()
            )


@webhooks.command("redeliver")
@click.argument("event_id", required=False)
@_which
@click.option(
    "--state", type=click.Choice(["dropped", "delivered", "all"]),
    help="For a range: receivers whose last delivery ended so (default: dropped); all: also those"
    " that never had one.")
@click.option("--dry-run", is_flag=True, help="Only say how many deliveries would be made.")
def redeliver(event_id: str | None, state: str | None, dry_run: bool, kind: str | None,
              owner: str | None, receiver: str | None, **rest: Any) -> None:
    """Send one event again, or all those between --since and --until."""
    options = _options()
    given = {"state": state, "type": kind, "owner": owner, **rest}
    for name, value in given.items():
        if event_id and value is not None:
            raise click.UsageError(f"--{name} is for a range; {event_id} is one event.")
    names = [one.name for one in options.receivers if receiver in (None, one.name)]
    if not names:
        raise click.ClickException(f"No receiver {receiver} is configured.")
    if event_id:
        made = webhook_resends.redeliver(event_id, names, options.waits_s[0], dry_run=dry_run)
    else:
        wanted = Filter(type=kind, owner_id=owner,
                        state=None if state == "all" else DeliveryState(state or "dropped"), **rest)
        made = webhook_resends.redeliver_range(wanted, names, options.waits_s[0], dry_run=dry_run)
    click.echo(f"{made} deliveries {'would be made' if dry_run else 'made'}")


@webhooks.command("send-test")
@click.option("--owner", default="operator", show_default=True, help="Goes into ownerId.")
@click.option("--message", default="A test of the webhook receivers.", show_default=True)
@click.option("--wait", "wait_s", default=60.0, show_default=True,
              help="Seconds to wait for the outcome; 0: none.")
def send_test(owner: str, message: str, wait_s: float) -> None:
    """Send an event of type webhook.test to every receiver and say what becomes of it; fails if one
    does not take it."""
    _options()
    event_id = ledger.send_trial(owner, message)
    click.echo(event_id)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        history = ledger.get_event(event_id)
        if history.deliveries and not any(
                row.state in OPEN_DELIVERY_STATES for row, _ in history.deliveries):
            for row, attempts in history.deliveries:
                why = f": {attempts[-1].reason}" if attempts and attempts[-1].reason else ""
                click.echo(f"{row.receiver} {row.state} after {row.attempts} attempts{why}")
            if any(row.state == DeliveryState.DROPPED for row, _ in history.deliveries):
                raise click.ClickException("Not every receiver took it.")
            return
        time.sleep(0.1)
    if wait_s:
        raise click.ClickException(
            f"Not finished after {wait_s:g} s; does the webhooks process run?")


def _options() -> WebhookOptions:
    options = webhook_options(get_settings())
    if not options.receivers:
        raise click.ClickException("No receiver is configured: SVC_WEBHOOK_RECEIVER_URL is empty.")
    return options
