"""What an operator does with accounts: make, list, change the plan or password, shut out."""
import secrets

import click

from app.operator.output import as_json, print_json
from models.states import Plan
from services.accounts import sessions, users

_PLANS = click.Choice([plan.value for plan in Plan])


@click.command("user-create")
@click.argument("email")
@click.option("--plan", type=_PLANS, default=Plan.FREE.value, show_default=True)
@click.option("--password", help="Generated and shown when left out.")
def user_create(email: str, plan: str, password: str | None) -> None:
    """Make an account."""
    chosen = secrets.token_urlsafe(12) if password is None else password
    user = users.create(email, chosen, Plan(plan))
    click.echo(f"id {user.id}")
    if password is None:
        click.echo(f"password {chosen}")


@click.command("user-plan")
@click.argument("email")
@click.argument("plan", type=_PLANS)
def user_plan(email: str, plan: str) -> None:
    """Put an account on another plan."""
    users.set_plan(users.get_by_email(email), Plan(plan))


@click.command("user-password")
@click.argument("email")
def user_password(email: str) -> None:
    """Give an account a new, generated password; its sessions end."""
    chosen = secrets.token_urlsafe(12)
    users.set_password(users.get_by_email(email), chosen)
    click.echo(f"password {chosen}")


@click.command("user-list")
@as_json
def user_list(machine: bool) -> None:
    """Show every account: id, e-mail address, plan, whether it is shut out."""
    found = users.list_all()
    if machine:
        fields = ("id", "email", "plan", "created_at", "disabled_at")
        print_json([{name: getattr(user, name) for name in fields} for user in found])
        return
    for user in found:
        click.echo(
            f"{user.id} {user.email} {user.plan} {'disabled' if user.disabled_at else 'active'}")


@click.command("user-disable")
@click.argument("email")
def user_disable(email: str) -> None:
    """Shut an account out: sessions end, keys and tokens are refused from the next request on."""
    users.set_disabled(users.get_by_email(email), disabled=True)


@click.command("user-enable")
@click.argument("email")
def user_enable(email: str) -> None:
    """Let an account in again; its keys work as before."""
    users.set_disabled(users.get_by_email(email), disabled=False)


@click.command("user-sign-out")
@click.argument("email")
def user_sign_out(email: str) -> None:
    """End every session of an account; tokens got with one last up to SVC_USER_JWT_S seconds
    more."""
    click.echo(f"ended {sessions.end_all(users.get_by_email(email))}")


COMMANDS = (user_create, user_plan, user_password, user_list, user_disable, user_enable,
            user_sign_out)
