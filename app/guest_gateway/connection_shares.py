"""Says who has to go when a guest connects and there is no room: so that guests whose connections
fill the process, many of one owner perhaps, keep nobody else's out."""
from collections import defaultdict
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ConnectionShares(Generic[Item]):
    """At most `capacity` connections, and `of_one` of a guest. Who has fewer than the guest that
    has most, by two or more, finds room always."""

    def __init__(self, capacity: int, of_one: int) -> None:
        self._capacity, self._of_one = capacity, of_one
        # In the order in which they came.
        self._of_guests: defaultdict[str, dict[Item, None]] = defaultdict(dict)
        self._sources: dict[Item, str] = {}

    def take(self, source: str, made: Item) -> Item | None:
        """Count the connection `made` of the guest at `source`. Returns the one that is to be ended
        for it and counts no more, itself perhaps: the newest of the guest that has most."""
        of_guest = self._of_guests.get(source, {})
        if len(of_guest) >= self._of_one:
            return made
        one_too_many = None
        if len(self._sources) >= self._capacity:
            largest = max(self._of_guests.values(), key=len)
            if len(largest) <= len(of_guest) + 1:
                return made
            one_too_many = next(reversed(largest))
            self.give_back(one_too_many)
        self._of_guests[source][made] = None
        self._sources[made] = source
        return one_too_many

    def give_back(self, ended: Item) -> None:
        """Count a connection no more; does nothing for one that is not counted."""
        source = self._sources.pop(ended, None)
        if source is None:
            return
        del self._of_guests[source][ended]
        if not self._of_guests[source]:
            del self._of_guests[source]
