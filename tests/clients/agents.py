"""Coding agents of presets that are told of the LLM proxy as docs/llm.md says."""
import json

# Path in the home -> what it holds, and the line that has one turn.
TOLD = {
    "opencode": ({"opencode.json": json.dumps({"provider": {"svc": {
        "npm": "@ai-sdk/openai-compatible", "models": {"one": {}},
        "options": {"baseURL": "{url}/v1", "apiKey": "none"}}}}), "models.json": "{}"},
        "OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_MODELS_PATH=$HOME/models.json"
        " opencode run -m svc/one 'Say something.'"),
    "pi": ({".pi/agent/models.json": json.dumps({"providers": {"svc": {
        "baseUrl": "{url}/v1", "api": "openai-completions", "apiKey": "none",
        "models": [{"id": "one"}]}}})},
        "pi --provider svc --model one -p 'Say something.'"),
    "codex": ({".codex/config.toml": 'model = "one"\nmodel_provider = "svc"\n'
               '[model_providers.svc]\nname = "svc"\nbase_url = "{url}/v1"\n'
               'wire_api = "responses"\n'},
              "codex exec --skip-git-repo-check 'Say something.'"),
    "claude": ({}, "ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=none ANTHROPIC_MODEL=claude-x"
               " claude -p 'Say something.'"),
}

# It asks for nothing, and leaves out its background server, a copy of it of 400 MB in the home.
_AT_WORK = """approval_policy = "on-request"
sandbox_mode = "danger-full-access"
{told}
[projects."/home/user"]
trust_level = "trusted"
[features]
daemon_auto_start = false
"""
_CODEX = ".codex/config.toml"


def codex_at_work(url):
    """The files in the home of a user who is asked nothing by `codex`, told of the proxy at
    `url`."""
    return {_CODEX: _AT_WORK.format(told=TOLD["codex"][0][_CODEX].replace("{url}", url))}


def tell(persona, sandbox_id, slug, url):
    """Write what the agent reads of the proxy at `url` into its user's home."""
    files, _ = TOLD[slug]
    persona.write(sandbox_id, {path: text.replace("{url}", url) for path, text in files.items()})
    persona.exec(sandbox_id, "chown", "-R", "user:user", "/home/user")


def install_log(persona, shown):
    """The lines of the log of a preset's start, in the sandbox that the API shows."""
    return persona.exec(shown["id"], "cat", shown["installLogPath"])["stdout"].splitlines()


def has_a_turn(persona, sandbox_id, slug, url):
    """The exec result of the agent's turn, as its user."""
    _, line = TOLD[slug]
    return persona.exec(sandbox_id, "su", "user", "-c",
                        f"cd && {line.replace('{url}', url)} </dev/null", timeoutMs=600_000)
