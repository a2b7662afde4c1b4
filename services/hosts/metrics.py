"""The VM hosts' figures for Prometheus, from the rows: the same from every process that is asked,
each as its node has told it last."""
from models.database import connection
from models.nodes import Node
from services.prometheus import Family


def families() -> list[Family]:
    """All figures; asks the database."""
    with connection():
        told = list(Node.select(Node.id, Node.stopped_machines).order_by(Node.id).tuples())
    return [
        ("svc_stopped_machines", "gauge",
         "Machines that stand stopped: kept for a wake, spares for a create, prepared without one.",
         [("", {"node": node_id, "kind": kind}, count)
          for node_id, counts in told for kind, count in counts.items()]),
    ]
