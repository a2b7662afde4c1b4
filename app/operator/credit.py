"""Compute credit by hand: `python -m app.operator credit --help`."""
from decimal import Decimal, InvalidOperation

import click

from config.settings import get_settings
from services.accounts import users
from services.metering import credit as credits


@click.group()
def credit() -> None:
    """Show and grant compute credit (SVC_COMPUTE_CREDIT)."""


@credit.command("show")
@click.argument("email")
def show(email: str) -> None:
    """Show an account's credit and list-rate cost of this month (UTC)."""
    found = credits.get_credit(get_settings(), users.get_named(email))
    limit = "no limit" if found.plan_amount is None else f"{found.plan_amount + found.granted:.2f}"
    click.echo(
        f"month {found.month:%Y-%m}\ncredit {limit}\ngranted {found.granted:.2f}\nused"
        f" {found.used:.2f}"
    )


@credit.command("grant")
@click.argument("email")
@click.argument("amount")
@click.option("--note", default="", help="Kept with the grant.")
def grant(email: str, amount: str, note: str) -> None:
    """Give an account AMOUNT more for this month (UTC)."""
    try:
        extra = Decimal(amount)
    except InvalidOperation as error:
        raise click.ClickException(f"{amount!r} is not a number") from error
    credits.grant(users.get_named(email), extra, note)
    click.echo("granted")
