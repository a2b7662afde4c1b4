"""The form in which Prometheus reads figures."""
from services.prometheus import text_of


def test_each_family_says_what_it_is_and_labels_are_escaped():
    families = [("svc_open", "gauge", "Open ones.", [("", {}, 2)]),
                ("svc_all", "gauge", "All.", [("", {"node": 'a"b\\c\nd', "kind": "é"}, 0.5)])]
    assert text_of(families) == (
        "# HELP svc_open Open ones.\n# TYPE svc_open gauge\nsvc_open 2\n"
        "# HELP svc_all All.\n# TYPE svc_all gauge\n"
        'svc_all{node="a\\"b\\\\c\\nd",kind="é"} 0.5\n')
