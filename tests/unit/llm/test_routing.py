"""Where a call goes: by model, prefix, preference, default, and what has just failed."""
import pytest

from services.errors import InvalidRequest, NotFound, Unavailable
from services.llm.callers import LlmCaller
from services.llm.configured.upstreams import FallOver, LlmConfig, Protocol, Target, Upstream
from services.llm.routing import RestingUpstreams, list_models, route

OPENAI, ANTHROPIC = Protocol.OPENAI, Protocol.ANTHROPIC


def upstream(name, kind):
    return Upstream(name, kind, f"http://{name}.test/v1", "x-key", "key")


O1, O2, O3, O4, A1, A2 = (upstream(name, OPENAI if name[0] == "o" else ANTHROPIC)
                          for name in ("o1", "o2", "o3", "o4", "a1", "a2"))
CONFIG = LlmConfig(
    upstreams={one.name: one for one in (O1, O2, O3, O4, A1, A2)},
    models={
        "fast": (Target(O2, "small"), Target(A2, "haiku"), Target(O1, "mini")),
        "gpt-x": (Target(O1, "gpt-x"),),
        "opus": (Target(A2, "claude-opus"),),
        "many": (Target(O1, "m"), Target(O2, "m"), Target(O3, "m"), Target(O4, "m")),
    },
    default_model="fast",
    prefixes={"claude-": A1, "claude-3": A2, "qwen": O3, "llama": A2},
    fall_over=FallOver(tries=3),
)


def to(model, protocol=OPENAI, preferred="", config=CONFIG, **options):
    caller = LlmCaller("owner", "sandbox", preferred)
    return [f"{target.upstream.name}/{target.model}"
            for target in route(config, caller, protocol, model, **options)]


@pytest.mark.parametrize(("model", "protocol", "preferred", "found"), [
    # known: the caller's own, whatever is preferred
    ("gpt-x", OPENAI, "", ["o1/gpt-x"]),
    ("gpt-x", OPENAI, "fast", ["o1/gpt-x"]),
    ("fast", OPENAI, "gpt-x", ["o2/small", "o1/mini"]),
    ("fast", ANTHROPIC, "opus", ["a2/haiku"]),
    # a prefix: passed on as it is; the longest one, of the call's protocol
    ("claude-sonnet", ANTHROPIC, "opus", ["a1/claude-sonnet"]),
    ("claude-3-haiku", ANTHROPIC, "", ["a2/claude-3-haiku"]),
    ("qwen3", OPENAI, "gpt-x", ["o3/qwen3"]),
    # empty or unknown: what is preferred
    ("", OPENAI, "gpt-x", ["o1/gpt-x"]),
    ("", ANTHROPIC, "opus", ["a2/claude-opus"]),
    ("", ANTHROPIC, "claude-x", ["a1/claude-x"]),
    ("nobody-knows", OPENAI, "gpt-x", ["o1/gpt-x"]),
    ("nobody-knows", ANTHROPIC, "opus", ["a2/claude-opus"]),
    # a preference of the other protocol is none
    ("", OPENAI, "opus", ["o2/small", "o1/mini"]),
    ("claude-sonnet", OPENAI, "", ["o1/claude-sonnet"]),
    # empty and nothing preferred: the default
    ("", OPENAI, "", ["o2/small", "o1/mini"]),
    ("", ANTHROPIC, "", ["a2/haiku"]),
    # unknown and nothing preferred: the first upstream of the protocol
    ("nobody-knows", OPENAI, "", ["o1/nobody-knows"]),
    ("nobody-knows", ANTHROPIC, "", ["a1/nobody-knows"]),
    ("", OPENAI, "nobody-knows", ["o2/small", "o1/mini"]),
    # for no model, such as for the list of them: the default's first, whatever is preferred
    (None, OPENAI, "", ["o2/", "o1/", "o3/"]),
    (None, ANTHROPIC, "opus", ["a2/", "a1/"]),
])
def test_where_a_call_goes(model, protocol, preferred, found):
    assert to(model, protocol, preferred) == found


def test_a_model_of_the_other_protocol_is_refused_as_nothing_is_translated():
    with pytest.raises(InvalidRequest, match="gpt-x is not offered in the anthropic protocol"):
        to("gpt-x", ANTHROPIC)


def test_without_any_model_a_call_is_refused():
    with pytest.raises(InvalidRequest, match="Name a model"):
        to("", config=LlmConfig({"o1": O1}))
    assert to("", preferred="mine", config=LlmConfig({"o1": O1})) == ["o1/mine"]


def test_a_protocol_that_no_upstream_speaks_is_not_there():
    with pytest.raises(NotFound, match="anthropic protocol"):
        to("x", ANTHROPIC, config=LlmConfig({"o1": O1}))


def test_a_call_is_tried_so_often_and_what_rests_comes_last():
    assert to("many") == ["o1/m", "o2/m", "o3/m"]
    assert to("many", resting={"o1", "o3"}) == ["o2/m", "o4/m", "o1/m"]
    assert to("gpt-x", resting={"o1"}) == ["o1/gpt-x"], "better than nothing"


def test_what_is_switched_off_is_not_tried():
    assert to("many", switched_off={"o1", "o2"}) == ["o3/m", "o4/m"]
    with pytest.raises(Unavailable, match="switched off"):
        to("gpt-x", switched_off={"o1"})


def test_a_list_of_models_comes_from_whatever_upstream_of_its_protocol_works():
    config = LlmConfig({one.name: one for one in (A1, O1, O2, O3)}, default_model="qwen3",
                       prefixes={"qwen": O2})
    assert to(None, config=config) == ["o2/", "o1/", "o3/"]
    assert to(None, config=config, switched_off={"o2"}) == ["o1/", "o3/"]
    assert to(None, config=config, resting={"o2"}) == ["o1/", "o3/", "o2/"]
    assert to(None, ANTHROPIC, config=config) == ["a1/"]
    with pytest.raises(Unavailable, match="switched off"):
        to(None, ANTHROPIC, config=config, switched_off={"a1"})


def test_an_upstream_rests_for_a_while_after_it_failed_or_until_it_answers():
    present = [100.0]
    resting = RestingUpstreams(clock=lambda: present[0])
    resting.failed("o1", 20)
    resting.failed("o2", 20)
    assert resting.names() == {"o1", "o2"}
    resting.answered("o2")
    assert resting.names() == {"o1"}
    present[0] = 120.0
    assert resting.names() == set()


def test_the_models_that_can_be_asked_for():
    assert list_models(CONFIG) == ["fast", "gpt-x", "many", "opus"]
    assert list_models(CONFIG, ANTHROPIC) == ["fast", "opus"]
