"""`X-Svc-Node`: every route about one sandbox keeps to it; the list, which is about no node, does
not look at it."""
import pytest

from tests.contract.authorisation_table import TABLE

SANDBOXES = "/v1/sandboxes"
ABOUT_ONE = [row for row in TABLE if "<sandbox_id>" in row.rule]


@pytest.fixture(scope="module")
def mine(edge):
    """Headers of an owner, and the id of its sandbox on node n1."""
    headers = edge.key(edge.newcomer())
    return headers, edge.api.post(SANDBOXES, json={}, headers=headers).json["id"]


def send(edge, row, sandbox, headers):
    return edge.api.open(row.path({"sandbox_id": sandbox, "port": "3000"}), method=row.method,
                         json=row.content({}), headers=headers)


def test_the_table_has_every_route_about_one_sandbox(edge):
    """So that a new route cannot be forgotten here."""
    rules = {(method, rule.rule)
             for rule in edge.api.application.url_map.iter_rules() if "<sandbox_id>" in rule.rule
             for method in rule.methods - {"HEAD", "OPTIONS"}}
    assert {(row.method, row.rule) for row in ABOUT_ONE} == rules and len(rules) >= 12


@pytest.mark.parametrize("row", ABOUT_ONE, ids=str)
def test_a_wrong_pin_is_421_and_a_right_one_as_good_as_none(edge, mine, row):
    headers, sandbox = mine
    wrong = send(edge, row, sandbox, headers | {"X-Svc-Node": "elsewhere"})
    assert wrong.status_code == 421 and "n1" in wrong.json["error"], wrong.text
    if row.method == "GET" and not row.query:
        right = send(edge, row, sandbox, headers | {"X-Svc-Node": "n1"})
        assert right.status_code == send(edge, row, sandbox, headers).status_code != 421
    assert send(edge, row, sandbox, headers | {"X-Svc-Node": "x" * 300}).status_code == 400


@pytest.mark.parametrize("row", ABOUT_ONE, ids=str)
def test_a_pin_tells_a_stranger_nothing(edge, mine, row):
    headers = edge.key(edge.newcomer()) | {"X-Svc-Node": "elsewhere"}
    answer = send(edge, row, mine[1], headers)
    assert answer.status_code == 403 and "n1" not in answer.json["error"]


def test_the_list_is_about_no_node(edge, mine):
    answer = edge.api.get(SANDBOXES, headers=mine[0] | {"X-Svc-Node": "elsewhere"})
    assert answer.status_code == 200 and [entry["id"]
                                          for entry in answer.json["sandboxes"]] == [mine[1]]
