"""`dev.env`: what clients of a one-box stack need to know, as lines for a shell."""
from collections.abc import Mapping

from bin.console import Advice
from bin.stack import health
from bin.stack.site import Site, write_env
from config.env_file import read_env

# Settings among its lines; `FACTS` of bin/stack/site.py has them too.
ADDRESSES = ("SVC_API_URL", "SVC_AUTH_URL", "SVC_SHELL_URL", "SVC_CA_FILE", "SVC_EDGE_PORT",
             "SVC_PREVIEW_DOMAIN", "SVC_APPS_DOMAIN")
_PEOPLE = ("ALICE", "BOB", "MALLORY")
NAMES = (*ADDRESSES, "SVC_API_KEY",
         *(f"SVC_{name}_{what}" for name in _PEOPLE for what in ("EMAIL", "PASSWORD")),
         "SVC_SERVICE_TOKEN")


def read(site: Site) -> dict[str, str]:
    """Its lines; empty before the first."""
    return read_env(site.data_dir / "dev.env")


def is_current(site: Site) -> bool:
    """True if the addresses in it are those of today, and the key in it works."""
    known = read(site)
    if any(known.get(name) != site.values[name] for name in ADDRESSES):
        return False
    key = known.get("SVC_API_KEY")
    return bool(key) and health.answers(f"{known['SVC_API_URL']}/v1/sandboxes",
                                        {"Authorization": f"Bearer {key}"})


def write(site: Site, people: Mapping[str, str]) -> None:
    """Write it anew; `people` are the lines that `seed-dev` printed. Raises Advice if one of ours
    is missing there."""
    known = {**site.values, **people}
    missing = [name for name in NAMES if name not in known]
    if missing:
        raise Advice(f"`python -m app.operator seed-dev` did not print {', '.join(missing)}.")
    write_env(site.data_dir / "dev.env", {name: known[name] for name in NAMES})
