"""The guest gateway of a stack with models behind it, and guests that ask it over real packets."""
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time

from bin.stack import unix_accounts
from bin.stack.health import answers, guest_gateway_health
from bin.stack.running import Stack
from bin.stack.site import ROOT, Site
from config import guest_gateway
from models.database import connection
from models.sandboxes import Sandbox
from models.usage import LlmCall
from services.llm.sandbox_url import secret_of
from tests.fakes.llm_upstream import KEY
from tests.stack.waiting import until

MODELS = {
    "both": [{"upstream": "first", "model": "first-model"},
             {"upstream": "second", "model": "second-model"}],
    "one": [{"upstream": "first", "model": "first-model"}],
    "claude-x": [{"upstream": "claude"}],
}


def config_of(first, second):
    """A configuration with two upstreams of OpenAI's protocol and one of Anthropic's."""
    return {
        "upstreams": [
            {"name": "first", "kind": "openai", "url": first.url, "key": KEY},
            {"name": "second", "kind": "openai", "url": second.url, "key": KEY},
            {"name": "claude", "kind": "anthropic", "url": first.url, "key": KEY}],
        "models": MODELS, "fallOver": {"restS": 0},
    }


@contextlib.contextmanager
def running_gateway(stack, config, directory, **settings):
    """In place of the stack's own, with SVC_* settings besides, models unless `config` is None, and
    what it keeps in `directory`; gives the process, and the file of what it says."""
    path, log = directory / "llm.json", directory / "guest-gateway.log"
    if config is not None:
        path.write_text(json.dumps(config))
        settings["SVC_LLM_CONFIG"] = str(path)
    stack.stop("guest-gateway")
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", "app.guest_gateway"], cwd=ROOT,
                                   env={**os.environ, **stack.env, "SVC_DATA_DIR": str(directory),
                                        **settings},
                                   stdout=output, stderr=output)
    (directory / "pid").write_text(str(process.pid))
    try:
        deadline = time.monotonic() + 120
        while not answers(guest_gateway_health(stack.settings)):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield process, log
    finally:
        process.terminate()
        process.wait(20)
        stack.start("guest-gateway")
        until(lambda: answers(guest_gateway_health(stack.settings)))


@contextlib.contextmanager
def models_behind(stack, config, directory):
    """The stack's own gateway has the models of `config`, and its API tells sandboxes of them, as
    where an operator has set SVC_LLM_CONFIG."""
    path = directory / "llm.json"
    path.write_text(json.dumps(config))
    directory.chmod(0o711)
    values = {**stack.site.values, "SVC_LLM_CONFIG": str(path)}
    told = Stack(Site(stack.site.data_dir, values), durable=False, processes=stack.processes)
    unix_accounts.prepare(told.site)
    try:
        _restart(told)
        yield
    finally:
        _restart(stack)


def _restart(stack):
    stack.supervisor.launch()
    stack.restart("guest-gateway", "api")
    until(lambda: answers(guest_gateway_health(stack.settings)))
    until(lambda: answers(f"{stack.api_url}/health"))


class Asker:
    """A sandbox whose guest asks from a slot's place."""

    def __init__(self, stack, sandbox_id, place):
        self.sandbox_id, self.place = sandbox_id, place
        self.secret = secret_of(stack.settings, sandbox_id)
        with connection():
            assert Sandbox.update(vm_ip=place.address).where(Sandbox.id == sandbox_id).execute()

    def connect(self):
        return self.place.run(lambda: socket.create_connection(
            (guest_gateway.ADDRESS, guest_gateway.PORT), timeout=60))

    def send(self, path, body=None, headers=None, secret=None):
        """Send a request; gives the connection."""
        link = http.client.HTTPConnection("gateway")
        link.sock = self.connect()
        if not isinstance(body, (bytes, type(None))):
            body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        prefix = "" if secret == "" else f"/s/{secret or self.secret}"
        link.request("GET" if body is None else "POST", prefix + path, body, headers or {})
        return link

    def begin(self, path, body=None, headers=None, secret=None):
        """As `send`; gives the answer as far as its head, too."""
        link = self.send(path, body, headers, secret)
        return link, link.getresponse()

    def ask(self, path, body=None, headers=None, secret=None):
        """The whole answer: status, headers, bytes."""
        link, answer = self.begin(path, body, headers, secret)
        with contextlib.closing(link):
            return answer.status, answer.headers, answer.read()

    def chat(self, model="one", path="/v1/chat/completions", **more):
        """A question to a model; the answer as `ask` has it."""
        return self.ask(path, question(model, **more))

    def last_call(self, patience_s=20):
        """The row of the sandbox's last call, once it has ended."""
        deadline = time.monotonic() + patience_s
        while True:
            with connection():
                row = (LlmCall.select().where(LlmCall.sandbox_id == self.sandbox_id)
                       .order_by(LlmCall.started_at.desc()).first())
            if row is not None and row.ended_at is not None:
                return row
            assert time.monotonic() < deadline, "the call has no end"
            time.sleep(0.05)


def question(model="one", text="a question", **more):
    """A body that both protocols take."""
    return {"model": model, "messages": [{"role": "user", "content": text}], "input": text,
            "max_tokens": 100, **more}


def events(body):
    """The data of a stream's events."""
    return [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
