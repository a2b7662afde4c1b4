"""The OpenAPI document says what the routes are: every one of them, and nothing that its code does
not do."""
import re

import jsonschema_rs
import pytest

from app.api import factory as api
from app.http.credentials import PUBLIC, SESSION, accepted_by
from app.http.openapi import document
from app.http.route import ListOf, route_of
from app.identity import factory as identity
from app.identity.local_authority import LocalAuthority
from app.identity.sessions import COOKIE
from app.schemas.answers import Answer
from config.settings import Settings


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    settings = Settings(session_secret="x", signing_keys_dir=tmp_path_factory.mktemp("keys"))
    return {
        "api": api.create_app(settings, LocalAuthority(settings)),
        "identity": identity.create_app(settings)
    }


@pytest.fixture(scope="module", params=["api", "identity"])
def app(hosts, request):
    return hosts[request.param]


@pytest.fixture(scope="module")
def described(app):
    return app.test_client().get("/openapi.json").json


def rules(app):
    return [(method, rule, app.view_functions[rule.endpoint])
            for rule in app.url_map.iter_rules()
            for method in sorted(rule.methods - {"HEAD", "OPTIONS"})]


def operations(described):
    return {(method.upper(), path): operation
            for path, methods in described["paths"].items()
            for method, operation in methods.items()}


def test_every_route_says_what_it_answers(app):
    silent = [
        f"{method} {rule.rule}: {view.__module__}.{view.__name__} is no @route (app/http/route.py)"
        for method, rule, view in rules(app)
        if route_of(view) is None
    ]
    assert silent == []


def test_the_document_has_every_route_and_no_other(app, described):
    assert set(operations(described)) == {(method, document.path_of(rule))
                                          for method, rule, _ in rules(app)}


def test_the_document_has_every_status_of_a_route_and_no_other(app, described):
    shown = operations(described)
    for method, rule, view in rules(app):
        expected = {*route_of(view).successes, *route_of(view).error_statuses(rule.rule)}
        assert {int(status)
                for status in shown[method, document.path_of(rule)]["responses"]} == expected


def test_the_credentials_are_those_of_the_route(app, described):
    shown = operations(described)
    for method, rule, view in rules(app):
        accepted = accepted_by(view) - {PUBLIC}
        names = {
            name for entry in shown[method, document.path_of(rule)]["security"] for name in entry
        }
        assert names == {document.SCHEMES[credential][0] for credential in accepted}, rule.rule
        assert names <= set(described["components"]["securitySchemes"])
    assert document.SCHEMES[SESSION][1]["name"] == COOKIE


def test_operations_have_ids_of_their_own_and_say_what_they_do(described):
    shown = operations(described).values()
    ids = [operation["operationId"] for operation in shown]
    assert len(set(ids)) == len(ids)
    assert all(operation["summary"].endswith(".") and len(operation["summary"]) < 200
               for operation in shown)
    assert all(tag["description"] for tag in described["tags"])


def test_every_field_of_a_request_is_explained(described):
    bodies = {
        media["schema"].get("items", media["schema"]).get("$ref")
        for operation in operations(described).values()
        for media in operation.get("requestBody", {"content": {}})["content"].values()
    } - {None}
    fields = {
        f"{body.rpartition('/')[2]}.{name}": field
        for body in bodies
        for name, field in resolved(described, body)["properties"].items()
    } | {
        f"{method} {path} {parameter['name']}": parameter
        for (method, path), operation in operations(described).items()
        for parameter in operation["parameters"] if "$ref" not in parameter
    }
    assert [name for name, field in fields.items() if not field.get("description")] == []


def resolved(described, reference):
    node = described
    for step in reference.removeprefix("#/").split("/"):
        node = node[step]
    return node


def test_references_lead_somewhere_and_nothing_is_left_over(described):
    references = set(re.findall(r"'\$ref': '([^']+)'", str(described)))
    assert all(resolved(described, reference) for reference in references)
    for kind in ("schemas", "parameters"):
        assert {f"#/components/{kind}/{name}"
                for name in described["components"][kind]} <= references


def test_schemas_are_json_schema(described):
    for name, schema in described["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}), name


def test_examples_are_bodies_that_work(app, described):
    """A body that has to be sent has an example, and both the schema of the document and the real
    one take it."""
    shown = operations(described)
    for method, rule, view in rules(app):
        declared, body = route_of(view), shown[method, document.path_of(rule)].get("requestBody")
        if body is None or isinstance(declared.body, str):
            continue
        assert declared.example is not None or not body["required"], f"{rule.rule} has no example"
        if declared.example is not None:
            schema = body["content"]["application/json"]["schema"]
            jsonschema_rs.validate({**schema, "components": described["components"]},
                                   declared.example)
            is_list = isinstance(declared.body, ListOf)
            (declared.body.item if is_list else declared.body)().load(declared.example,
                                                                      many=is_list)


def test_answers_are_all_in_use(hosts):
    named = {
        name
        for app in hosts.values()
        for name in document.build(app, "", "", "")["components"]["schemas"]
    }
    assert {answer.__name__.removesuffix("Answer") for answer in Answer.__subclasses__()} <= named


def test_the_document_is_cacheable_and_asks_for_no_credential(app):
    client = app.test_client()
    for path in ("/openapi.json", "/docs"):
        answer = client.get(path)
        assert (
            answer.status_code == 200 and answer.headers["Cache-Control"] == "public, max-age=300"
        )
        again = client.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert again.status_code == 304 and not again.data
