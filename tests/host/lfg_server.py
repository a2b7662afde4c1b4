"""The web UI `lfg` as a real process of this machine, and a browser's side of its WebSockets."""
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import websocket

from bin.stack.site import ROOT
from tests.host.javascript import bun

APP = ROOT / "guest/lfg"
_TIMEOUT_S = 30


class LfgServer:
    """lfg serving `project`. `programs` maps the name of a program to the shell script that stands
    in for it; an agent without one is not installed."""

    def __init__(self, home: Path, programs: dict[str, str], *, app: Path = APP) -> None:
        self.project = home / "project"
        self.project.mkdir()
        found = home / "bin"
        found.mkdir()
        for name, script in programs.items():
            (found / name).write_text(f"#!/bin/bash\n{script}\n")
            (found / name).chmod(0o755)
        (home / ".bash_profile").write_text("PS1='ready> '\n")
        self._environ = {"PATH": f"{found}:/usr/bin:/bin", "HOME": str(home),
                         "GIT_CONFIG_NOSYSTEM": "1"}
        self._log = (home / "lfg.log").open("w")
        self._main = app / "server/main.ts"
        self.port = 0
        self.serve()
        self.host = f"127.0.0.1:{self.port}"
        self.origin = f"http://{self.host}"
        self.http = httpx.Client(base_url=self.origin, timeout=_TIMEOUT_S, trust_env=False)

    def serve(self) -> None:
        """Start it, again on the port it had before."""
        self.process = subprocess.Popen(
            [str(bun()), self._main, str(self.port), "127.0.0.1"], cwd=self.project,
            env=self._environ, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self.process.stdout
        with self.process.stdout as said:
            self.port = int(said.readline().split()[-1])

    def close(self) -> None:
        """End it, and what it runs."""
        self.http.close()
        self.process.terminate()
        self.process.wait(30)
        self._log.close()

    def get(self, route: str, **query: str) -> dict:
        return self.http.get(route, params=query).raise_for_status().json()

    def change(self, method: str, path: str, **options) -> httpx.Response:
        """A request as the own page sends it."""
        return self.http.request(method, path, headers={"Origin": self.origin}, **options)

    def socket(self, path: str, **options: Any) -> websocket.WebSocket:
        options = dict[str, Any](origin=self.origin, timeout=_TIMEOUT_S) | options
        return websocket.create_connection(f"ws://{self.host}{path}", **options)

    def connecting(self, path: str, **headers: str) -> int:
        """The status of the answer to a request for a WebSocket that is refused."""
        asks = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        return self.http.get(path, headers=asks | headers).status_code

    def look(self, tab: str, cols: int = 80, rows: int = 24) -> "Look":
        return Look(self, tab, cols, rows)

    def tabs(self) -> dict[str, dict]:
        """What a browser that comes now is told of each tab."""
        session = self.socket("/ws/session")
        hello, told = json.loads(session.recv()), json.loads(session.recv())
        session.close()
        assert hello["directory"] == str(self.project)
        return {tab["id"]: tab for tab in told["tabs"]}

    def git(self, *words: str) -> None:
        """Run git in the project, as an agent does."""
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
                       cwd=self.project, check=True, capture_output=True,
                       env={"PATH": os.environ["PATH"], "HOME": str(self.project.parent)})


class Look:
    """A browser that looks at one tab; says what it has read, unless it `hangs`. Use as a context
    manager."""

    def __init__(self, server: LfgServer, tab: str, cols: int, rows: int) -> None:
        self.socket = server.socket(f"/ws/terminal/{tab}?cols={cols}&rows={rows}")
        self.shown = b""
        self.told: list[dict] = []
        self.frames: list[int] = []
        self.hangs = False

    def __enter__(self) -> "Look":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.socket.shutdown()  # it leaves one open that the other side has closed

    def type(self, text: str) -> None:
        self.socket.send_binary(text.encode())

    def say(self, **message) -> None:
        self.socket.send(json.dumps(message))

    def step(self) -> None:
        """Take one message."""
        kind, data = self.socket.recv_data()
        assert kind != websocket.ABNF.OPCODE_CLOSE, data
        if kind == websocket.ABNF.OPCODE_TEXT:
            self.told.append(json.loads(data))
            return
        self.frames.append(len(data))
        self.shown += data
        if not self.hangs:
            self.say(type="read", bytes=len(data))

    def until(self, text: str) -> bytes:
        """What is shown up to `text`, which the next call does not see again."""
        sought, end = text.encode(), time.monotonic() + _TIMEOUT_S
        while sought not in self.shown:
            assert time.monotonic() < end, f"{text!r} does not come, but {self.shown[-1000:]!r}"
            self.step()
        seen, _, self.shown = self.shown.partition(sought)
        return seen + sought

    def told_of(self, kind: str, **values) -> dict:
        """The next message of a kind, with these values."""
        end = time.monotonic() + _TIMEOUT_S
        while True:
            assert time.monotonic() < end, f"no {kind} with {values}"
            for position, message in enumerate(self.told):
                if message["type"] == kind and values.items() <= message.items():
                    del self.told[:position + 1]
                    return message
            self.step()
