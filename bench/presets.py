"""What the agent presets of a node add to a create: from the request to its answer, which a preset
is part of, beside a plain one until it runs."""
from bench.api import Api
from bench.figures import Figure, timed
from guest.presets import SLUGS

# Each is answered after SVC_PRESET_BUILD_WAIT_S at the latest.
_TRIES = 15


def create_presets(api: Api, count: int) -> list[Figure]:
    """`count` creates of each preset, each after a plain one, once the node has built them; raises
    RuntimeError for a preset that is not ready then."""
    tries = 0
    while not _is_ready(api, SLUGS[-1]) and tries < _TRIES:
        tries += 1
    return [_create(api, slug, count) for slug in SLUGS]


def _is_ready(api: Api, slug: str) -> bool:
    made = api.create(size="small", template=slug)
    state = api.get(made)["templateStatus"]
    api.delete(made)
    return bool(state == "ready")


def _create(api: Api, slug: str, count: int) -> Figure:
    figure = Figure(f"create_{slug}", note="floor: a create without a preset")
    for _ in range(count):
        made: list[str] = []

        def plain(made: list[str] = made) -> None:
            made.append(api.create_running(size="small"))

        def preset(made: list[str] = made) -> None:
            made.append(api.create(size="small", template=slug))

        figure.floor.append(timed(plain))
        figure.samples.append(timed(preset))
        state = api.get(made[1])["templateStatus"]
        for sandbox_id in made:
            api.delete(sandbox_id)
        if state != "ready":
            raise RuntimeError(f"the preset {slug} is {state}")
    return figure
