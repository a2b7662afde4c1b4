"""`make up`: everything from an empty machine to a service that has just run a sandbox. Each step
does nothing if done.

System packages and `.venv` come first, by bin.bootstrap. Then 1. guest image and warm image, 2.
servers, 3. keys and schema, 4. processes, 5. development users, 6. a smoke test, 7. a summary.
"""
import sys

from bin.console import explained, say, step
from bin.stack.running import Stack
from bin.stack.site import Site
from bin.stack.smoke import smoke

SUMMARY = """
The service is up.

  API        {api}          identity  {auth}
  Flower     http://127.0.0.1:{flower_port}  ({flower_login})
  users and keys are in var/dev.env, logs under var/log (`make logs`)

Try it:

  . var/dev.env
  curl -s -X POST $SVC_API_URL/v1/sandboxes -H "Authorization: Bearer $SVC_API_KEY" \\
       -H 'Content-Type: application/json' -d '{{}}'
  curl -s -X POST $SVC_API_URL/v1/sandboxes/ID/exec -H "Authorization: Bearer $SVC_API_KEY" \\
       -H 'Content-Type: application/json' -d '{{"cmd": "uname", "args": ["-a"]}}'
"""


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


def main() -> None:
    with explained():
        stack = Stack(Site.development())
        up(stack)
        values = stack.site.values
        print(
            SUMMARY.format(api=stack.api_url, auth=stack.auth_url,
                           flower_port=values["SVC_FLOWER_PORT"],
                           flower_login=values["SVC_FLOWER_BASIC_AUTH"]))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
