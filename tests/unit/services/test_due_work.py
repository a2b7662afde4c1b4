"""How long work waits that has failed."""
import pytest

from services.hosts.warm_images import BAKES
from services.snapshots.deletion import DELETIONS
from services.snapshots.disk_upload import UPLOADS


@pytest.mark.parametrize("work,failures_before,seconds", [
    (UPLOADS, 0, 5), (UPLOADS, 1, 10), (UPLOADS, 5, 160), (UPLOADS, 6, 300), (UPLOADS, 10**6, 300),
    (BAKES, 0, 60), (BAKES, 2, 240), (BAKES, 6, 3600),
    (DELETIONS, 0, 60), (DELETIONS, 9, 60),
])
def test_the_pause_doubles_with_each_failure_up_to_a_limit(work, failures_before, seconds):
    assert work.pause_s(failures_before) == seconds
