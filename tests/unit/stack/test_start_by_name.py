"""`make start P=name`: a name that is none, or none at all, is told before anything is begun."""
import pytest

from bin import restart
from bin.console import Advice
from bin.stack.running import Stack
from bin.stack.site import Site


@pytest.mark.parametrize(("names", "told"), [
    (["node-clt"], "there is no process node-clt"), (["node-ctl", "postgres"], "process postgres"),
    ([], "say which")])
def test_it_is_refused(tmp_path, names, told):
    with pytest.raises(Advice, match=told):
        restart.start(Stack(Site.existing(tmp_path)), names)
    assert not list(tmp_path.iterdir())
