"""Exec rules: variables, arguments, and who runs the command."""
import pytest


def variables(persona, sandbox, **body):
    lines = persona.exec(sandbox["id"], "env", **body)["stdout"].splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_service_sets_no_provider_specific_base_url(alice, sandbox):
    names = [
        name for name in variables(alice, sandbox)
        if name.endswith(("_BASE_URL", "_API_BASE", "_BASE"))
    ]
    assert names == []


@pytest.mark.parametrize("name",
                         ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "SVC_AI_URL", "SVC_MEDIA_URL"])
def test_what_the_caller_passes_wins_and_is_forwarded_untouched(alice, sandbox, name):
    value = "https://proxy.example/v1/?a=b c&d=$HOME;'\"\\ü"
    assert variables(alice, sandbox, env={name: value})[name] == value
    assert variables(alice, sandbox).get(name) != value, "for that call only"


def test_arguments_are_passed_as_they_are(alice, sandbox):
    odd = ["a b", "$HOME", "*", "'", "", "ü", "-n;"]
    assert alice.exec(sandbox["id"], "echo", *odd)["stdout"] == " ".join(odd) + "\n"


def test_a_user_token_runs_commands_as_a_key_does(alice, sandbox):
    answer = alice.post(f"/v1/sandboxes/{sandbox['id']}/exec", json={"cmd": "echo", "args": ["hi"]},
                        headers=alice.jwt_headers)
    assert answer.status_code == 200 and answer.json()["stdout"] == "hi\n"
