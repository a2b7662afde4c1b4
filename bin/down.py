"""`make down`: sandboxes go to sleep, then every process of the stack ends; if one cannot, none
does, unless FORCE=1 is given. `make up` wakes nothing by itself."""
import sys

from bin.console import end_as_by_ctrl_c, explained, say
from bin.stack import leftovers
from bin.stack.running import Stack, remove_abandoned
from bin.stack.site import DEVELOPMENT, Site
from nodeworker.disks import directory_id

# Costly to make and of no sandbox: kept by `make clean`, removed by `make clean-all`.
CACHES = {"images", "wheels"}


def main(arguments: list[str]) -> None:
    """`down`, `force` (also if sandboxes stay awake), `clean` (everything the stack stored goes
    too) or `clean-all` (and the images and downloads)."""
    action = arguments[0] if arguments else "down"
    end_as_by_ctrl_c()
    with explained():
        data_dir = DEVELOPMENT
        remove_abandoned()
        if (data_dir / "stack.env").exists():
            stack = Stack(Site.existing(data_dir))
            if action in ("down", "force"):
                stack.down(force=action == "force")
            else:
                stack.destroy(keep=CACHES if action == "clean" else frozenset())
                if (stack.node_dir / directory_id.NAME).exists():
                    # Only who put it elsewhere knows what else is in it.
                    say(f"The sandboxes' files in {stack.node_dir} are left there; remove them"
                        " yourself.")
        elif action == "clean-all":
            leftovers.remove_entries(data_dir)
        say({
            "down": "Everything is stopped.",
            "force": "Everything is stopped.",
            "clean": "Stopped, and all sandboxes and accounts removed."
        }.get(action, "Stopped, and var/ removed."))


if __name__ == "__main__":
    main(sys.argv[1:])
