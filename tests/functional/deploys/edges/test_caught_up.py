"""What an edge serves when a deploy, or a removal, has been answered."""
import threading
import time

from models.database import connection
from models.deploys import Edge
from services.deploys.edges import staging


def test_who_waits_waits_for_the_edges_that_are_at_work_and_no_longer(deps):
    assert staging.wait_until_caught_up(0), "there is none"
    for edge in ("quick", "slow", "dead"):
        staging.caught_up(edge, staging.begin_round())
    with connection():
        Edge.update(heartbeat_at="2026-01-01T00:00:00Z").where(Edge.id == "dead").execute()
    assert not staging.wait_until_caught_up(0)
    before, returned = staging.begin_round(), []
    waiting = threading.Thread(target=lambda: returned.append(staging.wait_until_caught_up(20)))
    waiting.start()
    time.sleep(0.2)
    staging.caught_up("quick", staging.begin_round())
    staging.caught_up("slow", before)
    time.sleep(0.2)
    assert not returned, "one has not read the rows since"
    staging.caught_up("slow", staging.begin_round())
    waiting.join()
    assert returned == [True]
