"""A stack's edge with other settings than its stack's."""
from contextlib import contextmanager


@contextmanager
def edge_with(stack, **changes):
    """Have the edge take up `changes` for as long as the block runs."""
    reload(stack, **changes)
    try:
        yield
    finally:
        reload(stack)


def reload(stack, **changes):
    """Have it read the stack's settings anew, `changes` winning."""
    stack.run("python -m config.nginx.reload", env={**stack.env, **changes})
