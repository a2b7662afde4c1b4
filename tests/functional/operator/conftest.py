"""Flower, which the shared stacks do without, and the lines for a shell of docs/operations.md."""
import re
from textwrap import dedent

import pytest

from bin.stack import free_ports
from bin.stack.site import ROOT
from tests.stack.waiting import until


@pytest.fixture(scope="module")
def flower(sim_stack):
    """Its address, while it runs."""
    sim_stack.start("flower")
    until(lambda: not free_ports.is_free(sim_stack.settings.flower_port))
    yield f"http://127.0.0.1:{sim_stack.settings.flower_port}"
    sim_stack.stop("flower")


@pytest.fixture(scope="session")
def shell_blocks():
    """Finds the blocks for a shell below a heading of the page."""
    text = (ROOT / "docs" / "operations.md").read_text()

    def find(heading):
        section = re.split(r"\n##+ ", text.split(f"# {heading}\n")[1])[0]
        return [dedent(block) for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL)]
    return find
