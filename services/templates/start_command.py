"""The rule of start commands, the same for forks and for templates (contract, Fork rule 4)."""
from services.errors import InvalidRequest


def check_launch(
    start_command: str | None, readiness_port: int | None, ports: tuple[int, ...]
) -> None:
    """A start command needs a readiness port, which must be among the ports; raises
    InvalidRequest."""
    if start_command is None:
        return
    if readiness_port is None:
        raise InvalidRequest("startCommand needs a readinessPort")
    if readiness_port not in ports:
        raise InvalidRequest("readinessPort must also be in ports")
