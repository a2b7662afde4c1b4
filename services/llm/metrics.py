"""The LLM proxy's figures for Prometheus, from the rows: the same from every gateway, and after a
restart."""
from services.llm import operator_report, switches
from services.llm.call_cost import dollars
from services.prometheus import Family


def families() -> list[Family]:
    """All figures; asks the database."""
    used, state, off = operator_report.all_time(), operator_report.state(), switches.list_off()
    return [
        ("svc_llm_calls_total", "counter", "Calls that have ended.", [("", {}, used.calls)]),
        ("svc_llm_incomplete_calls_total", "counter", "Calls whose tokens are an estimate.",
         [("", {}, used.incomplete_calls)]),
        ("svc_llm_unpriced_calls_total", "counter", "Calls whose price is not known.",
         [("", {}, used.unpriced_calls)]),
        ("svc_llm_tokens_total", "counter", "Tokens; reasoning is a part of output.", [
            ("", {"kind": kind}, getattr(used, f"{kind}_tokens"))
            for kind in ("input", "cached", "cache_write", "output", "reasoning")]),
        ("svc_llm_cost_dollars_total", "counter", "Cost of the calls whose price is known.",
         [("", {}, dollars(used.cost))]),
        ("svc_llm_open_calls", "gauge", "Calls under way.", [("", {}, state.open_calls)]),
        ("svc_llm_abandoned_calls", "gauge", "Open calls that no gateway has in hand.",
         [("", {}, state.abandoned)]),
        ("svc_llm_switched_off", "gauge", "Switches that are off.", [("", {}, len(off))]),
        ("svc_llm_upstream_calls_last_hour", "gauge", "Calls of the last hour by how they ended.", [
            ("", {"upstream": one.name, "end": end}, count) for one in state.upstreams
            for end, count in (("failed", one.failed), ("answered", one.calls - one.failed))]),
    ]
