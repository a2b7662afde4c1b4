"""What is true of the process of every app: the port it listens on, and the log of what it says."""

# Where an app has to accept connections (contract, Deploy rule 5).
APP_PORT = 3000
# Of bounded length: a full one becomes `<LOG>.1`, in the place of the one before.
LOG = "/var/log/svc-app.log"


def tail_script(wanted_bytes: int, lines: int | None = None) -> str:
    """The shell's line that prints the end of the log: so many bytes at most, and lines, if a
    number is given. Pure."""
    last_lines = "" if lines is None else f" | tail -n {lines}"
    # A full log has just become the one before: a secret may be half in each.
    return (f"tail -qc {wanted_bytes} {LOG}.1 {LOG} 2>/dev/null{last_lines}"
            f" | tail -c {wanted_bytes}")
