"""What an operator does with the signing keys: `python -m app.operator keys --help`.

Rotation: `rotate` publishes a new key, which begins to sign by itself SVC_KEY_PUBLISH_S seconds
later, when every cache knows it; `list` shows which keys are still needed; `retire` removes one
that is not.
"""
import click

from app.identity.signing_keys import KeyDirectory, KeyState
from app.operator.output import as_json, moment, print_json
from config.settings import Settings, get_settings
from models.database import now
from services.accounts import tokens
from services.accounts.key_retirement import blockers


@click.group()
def keys() -> None:
    """Manage the signing keys of the identity host."""


def _directory() -> KeyDirectory:
    return KeyDirectory(get_settings().signing_keys_dir)


@keys.command()
def ensure() -> None:
    """Make a signing key unless there is one."""
    click.echo(_directory().ensure(get_settings().jwt_algorithms[0]))


@keys.command()
@click.option("--now", "at_once", is_flag=True,
              help="Sign with it at once: the old key is lost or stolen.")
def rotate(at_once: bool) -> None:
    """Publish a new key, which signs from a little later on; old keys go on verifying until they
    are retired."""
    settings, directory = get_settings(), _directory()
    waiting = [state.kid for state in directory.list_states() if state.stage == "published"]
    if waiting and not at_once:
        raise click.ClickException(
            f"the key {waiting[-1]} is published and about to sign; wait for it")
    kid = directory.add(settings.jwt_algorithms[0],
                        signs_in_s=0.0 if at_once else settings.key_publish_s)
    click.echo(kid)


@keys.command("list")
@as_json
def list_all(machine: bool) -> None:
    """Show every key: id, algorithm, stage, when it begins to sign, live service tokens, what keeps
    it from going."""
    states = _directory().list_states()
    live = tokens.count_live_by_key()
    found = [(state, _blockers(get_settings(), states, state.kid, live)) for state in states]
    if machine:
        print_json([{"kid": state.kid, "algorithm": state.algorithm, "stage": state.stage,
                     "starts_at": state.starts_at, "live_service_tokens": live.get(state.kid, 0),
                     "needed_because": reasons} for state, reasons in found])
        return
    for state, reasons in found:
        click.echo(
            f"{state.kid} {state.algorithm} {state.stage} {moment(state.starts_at)}"
            f" {live.get(state.kid, 0)} {'; '.join(reasons) or 'may be retired'}"
        )


@keys.command()
@click.argument("kid")
@click.option("--force", is_flag=True,
              help="Even if tokens that it signed end thereby: the key is stolen.")
def retire(kid: str, force: bool) -> None:
    """Remove the key KID: what it signed verifies nowhere any more, as soon as caches have
    followed."""
    directory = _directory()
    states = directory.list_states()
    state = next((state for state in states if state.kid == kid), None)
    if state is None:
        raise click.ClickException(f"there is no key {kid}")
    if state.stage == "signing":
        raise click.ClickException(f"{kid} signs; rotate first (with --now if it is stolen)")
    reasons = _blockers(get_settings(), states, kid, tokens.count_live_by_key())
    if reasons and not force:
        raise click.ClickException(f"{kid} is still needed: {'; '.join(reasons)}")
    directory.remove(kid)
    click.echo("retired")


def _blockers(
    settings: Settings, states: list[KeyState], kid: str, live: dict[str, int]
) -> list[str]:
    signing = next((state.kid for state in states if state.stage == "signing"), "")
    starts = [(state.kid, state.starts_at) for state in states]
    return blockers(kid, starts, live, signing=signing, user_jwt_s=settings.user_jwt_s,
                    present=now())
