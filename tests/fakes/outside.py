"""What the rules need of the outside, for tests that are the worker themselves."""
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
