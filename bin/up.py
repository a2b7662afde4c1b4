"""`make up`: everything from an empty machine to a service that has just run a sandbox. Each step
does nothing if done.

System packages and `.venv` come first, by bin.bootstrap. Then 1. guest image and warm image, 2.
servers, 3. keys and schema, 4. processes, 5. development users, 6. a smoke test, 7. a summary.
"""
import sys
from collections.abc import Mapping
from pathlib import Path

from bin.admin import SERVICE_ENV
from bin.console import Advice, end_as_by_ctrl_c, explained, let_others_read, say, step
from bin.stack.running import Stack
from bin.stack.site import DEVELOPMENT, Site
from bin.stack.smoke import smoke

SUMMARY = """
The service is up.

  API        {SVC_API_URL}   {edge[api]}
  identity   {SVC_AUTH_URL}   {edge[identity]}
  shell      {SVC_SHELL_URL}
  previews   https://<secret>.{SVC_PREVIEW_DOMAIN}:{SVC_EDGE_PORT}
  Flower     http://127.0.0.1:{SVC_FLOWER_PORT}  ({SVC_FLOWER_BASIC_AUTH})
  users and keys are in var/dev.env, logs under var/log (`make logs`)
{trust}
Try it:

  . var/dev.env
  curl -s -X POST $SVC_API_URL/v1/sandboxes -H "Authorization: Bearer $SVC_API_KEY" \\
       -H 'Content-Type: application/json' -d '{{}}'
  curl -s -X POST $SVC_API_URL/v1/sandboxes/ID/exec -H "Authorization: Bearer $SVC_API_KEY" \\
       -H 'Content-Type: application/json' -d '{{"cmd": "uname", "args": ["-a"]}}'
"""
TRUST = """\
  HTTPS      trusted by `curl --cacert {0}`, and by Chromium after \
`certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n svc -i {0}`
"""


def check_host(service_env: Path, data_dir: Path) -> None:
    """Raises Advice on a host of an installation of its own, as long as it has no stack here: both
    would have the same networks and machines."""
    if service_env.exists() and not (data_dir / "stack.env").exists():
        raise Advice(f"{service_env} says that this host is part of an installation, whose networks"
                     " and machines `make up` would take for its own, and end. Use another host;"
                     " if that installation is gone, remove the file.")


def up(stack: Stack) -> None:
    """Bring the development stack up; returns when a sandbox has been created, used and deleted."""
    with step("Guest image and warm image"):
        stack.ensure_images(show=True)
    with step("Postgres, Redis and the S3 server"):
        stack.start_servers()
    with step("Signing keys and database schema"):
        stack.prepare()
    with step("Processes: " + ", ".join(stack.processes)):
        stack.start(*stack.processes)
        stack.wait_healthy()
    with step("Users alice, bob and mallory"):
        stack.seed()
    with step("Smoke test: create, exec, delete"):
        smoke(stack, say)


def summary(values: Mapping[str, str], edge: Mapping[str, str]) -> str:
    """What is said at the end; `edge` are the addresses of its hosts. The authority has to be
    trusted only where the certificate is of this machine's own."""
    trust = "" if values.get("SVC_TLS_CERT") else TRUST.format(values["SVC_CA_FILE"])
    return SUMMARY.format(edge=edge, trust=trust, **values)


def main() -> None:
    end_as_by_ctrl_c()
    let_others_read()
    with explained():
        check_host(SERVICE_ENV, DEVELOPMENT)
        stack = Stack(Site.development())
        up(stack)
        print(summary(stack.site.values, stack.edge_urls))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
