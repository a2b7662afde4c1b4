"""What tests of the guest gateway's parts share."""
import threading

import pytest

from app.guest_gateway.npm.kept_files import KeptFiles


class SlowListing:
    """Files of the npm cache take long to list: until `end`, or 5 s."""

    def __init__(self, monkeypatch):
        self._begun, self._may_end, self._ended = (threading.Event() for _ in range(3))
        files = KeptFiles._files

        def list_slowly(kept_files):
            listed = list(files(kept_files))
            self._begun.set()
            self._may_end.wait(5)
            self._ended.set()
            return iter(listed)

        monkeypatch.setattr(KeptFiles, "_files", list_slowly)

    def wait(self):
        assert self._begun.wait(5)

    @property
    def is_on(self):
        return self._begun.is_set() and not self._ended.is_set()

    def end(self):
        self._may_end.set()


@pytest.fixture
def make_listing_slow(monkeypatch):
    """Call it when the cache has been made, which lists its files too."""
    made = []

    def make():
        made.append(SlowListing(monkeypatch))
        return made[0]

    yield make
    for listing in made:
        listing.end()
