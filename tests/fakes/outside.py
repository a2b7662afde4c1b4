"""What the rules need of the outside, for tests that are the worker themselves: a queue in a list,
and no guests."""
from services.protocols import QueueUnavailable


class ListQueue:
    """A broker in a list, which can be away."""

    def __init__(self):
        self.sent = []
        self.away = False

    def publish(self, queue, job, payload):
        if self.away:
            raise QueueUnavailable("away")
        self.sent.append((queue, job, dict(payload)))


class NoGuests:
    """For rules that call no guest."""

    def connect(self, address, port, token):
        raise AssertionError("no guest is needed here")
