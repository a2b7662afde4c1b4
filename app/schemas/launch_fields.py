"""Fields that several bodies have which start something: create, forks, wake, templates."""
from functools import partial

from app.schemas.fields import IDEMPOTENCY_KEY_MAX, Command, Flag, Port, Text

IdempotencyKey = partial(
    Text, "A retry with the same key gets the first answer; with another request it is 409. Empty"
    " is none.", low=0, high=IDEMPOTENCY_KEY_MAX, load_default=None)
PreferredModel = partial(Text, "The model that the guest's proxy routes to.", low=0, high=128)
ReadinessPort = partial(
    Port, "The sandbox counts as running once this port of the guest takes connections.")
SkipAppProcesses = partial(
    Flag, "Make a raw sandbox, without an agent server. Left out: true for API keys that name none;"
    " on a fork what its source is.")
SnapshotId = partial(Text, "The snapshot to start from.", high=64, required=True)
StartCommand = partial(
    Command, "What to start in the guest at every boot; needs a `readinessPort` that is also in"
    " `ports`.")
