"""What a refused create is told: what is short, and whether waiting may help."""
from dataclasses import replace

import pytest

from services.hosts.capacity import Room, refusal
from services.hosts.disk_room import DiskRoom

SMALL = Room("n1", True, 16, 21694, 10, 3000)
LARGE = Room("n2", True, 64, 32768, 4, 30000)
CLOSED = Room("n3", False, 256, 262144, 256, 262144)

CASES = [
    ([SMALL], None, (12, 36864),
     "A machine of 12 vCPUs and 36864 MB of memory is too large: the largest node here may "
     "promise 16 vCPUs and 21694 MB, so 15170 MB of memory are short.", None),
    ([SMALL,
      LARGE], None, (12, 36864), "the largest node here may promise 64 vCPUs and 32768 MB", None),
    ([SMALL], None, (17, 1024), "so 1 vCPU is short.", None),
    ([SMALL], None, (20, 21695), "so 4 vCPUs and 1 MB of memory are short.", None),
    ([SMALL], "n1", (12, 36864), "too large: node n1 may promise", None),
    ([SMALL], None, (2, 4096),
     "There is no room for 2 vCPUs and 4096 MB of memory right now: node n1 has 10 vCPUs and "
     "3000 MB free.", 5),
    ([SMALL, LARGE], None, (8, 16384), "right now: node n2 has 4 vCPUs and 30000 MB free.", 5),
    ([SMALL,
      CLOSED], None, (12, 36864), "The nodes that could hold it take no sandboxes at present", 30),
    ([CLOSED], "n3", (1, 1024), "Node n3 takes no sandboxes at present", 30),
    ([], None, (1, 1024), "No VM host reports that it works at present", 5),
    ([], "n9", (1, 1024), "Node n9 does not report that it works at present", 5),
    ([Room("n1", True, 4, 4096, -2, -512)], None, (1, 1024),
     "no room for 1 vCPU and 1024 MB of memory right now: node n1 has 0 vCPUs and 0 MB free.", 5),
    ([SMALL, replace(LARGE, port_shortage="Node n2 has no free host ports.")], None, (2, 4096),
     "Node n2 has no free host ports.", 30),
]


@pytest.mark.parametrize(("rooms", "pinned", "machine", "text", "retry_after_s"), CASES)
def test_it_says_what_is_short_and_hints_only_where_time_may_help(
    rooms, pinned, machine, text, retry_after_s
):
    error = refusal(*machine, rooms, pinned)
    assert text in error.text and error.status == 503 and error.retry_after_s == retry_after_s


@pytest.mark.parametrize(("room", "mem_mb", "needed_mb"), [
    (DiskRoom(5000, 4000), 1000, None),
    (DiskRoom(5000, 4000), 1001, 1001),
    (DiskRoom(5000, 4000, 2048, 0.25), 1000, None),
    (DiskRoom(5000, 4000, 2048, 0.25), 1024, 1024),
    (DiskRoom(5000, 4000, 1000, 0.25), 1024, None),
    (DiskRoom(5000, 4000, 0, 0.25), 4000, None),
    (DiskRoom(5000, 4000, 0, 0.25), 4001, 1001),
    (DiskRoom(5000, 4000, 4001, 0.25), 4001, 4001),
])
def test_memory_beyond_what_the_node_has_takes_a_share_of_its_disk(room, mem_mb, needed_mb):
    error = room.refusal("n1", mem_mb)
    assert (error is None) == (needed_mb is None)
    assert error is None or f"5000 MB are free, {needed_mb} MB are needed" in error.text
