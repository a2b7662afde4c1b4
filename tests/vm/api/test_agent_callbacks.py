"""Agent callbacks of real guests, to a receiver at a public address that lives in a namespace of
its own."""
import http.server
import json
import threading
import time

import pytest

from tests.host.guest_network import public_listener

# Stands for any public server.
PUBLIC = "9.9.9.54"
TOKEN = "the-callback-token-of-a-session"
# What the host writes into the guest, again.
AGAIN = ("import json; file = '/run/svc-agent/launch.json'; wanted = json.load(open(file)); "
         "wanted['bootstrap'] = json.load(open('/run/svc-agent/bootstrap.json')); "
         "json.dump(wanted, open(file, 'w'))")
SERVER = ("id -un > /tmp/who; env > /tmp/env; svc-callback turn_complete '{\"turn\": 1}'; "
          "exec python3 -m http.server 4096")
FILE = "/run/svc-agent/bootstrap.json"
NOT_CONFIGURED, REFUSED = 3, 4
# From here on the guest's command fails at its first `stop`, as systemctl does when it waits too
# long for a slow guest's systemd.
FAILS_ONCE = """cd /usr/local/sbin && mv svc-agent-server real-agent-server
cat > svc-agent-server <<'END'
#!/bin/sh
[ "$1" != stop ] || [ -e /tmp/tried ] || { touch /tmp/tried; exit 1; }
exec /usr/local/sbin/real-agent-server "$@"
END
chmod 755 svc-agent-server"""


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what is posted to it."""

    daemon_threads = True

    def __init__(self, listener):
        super().__init__(listener.getsockname(), Post, bind_and_activate=False)
        self.socket.close()
        self.socket, self.posts = listener, []

    def wait_for(self, kind, sandbox, count=1):
        """The posts of a type by a sandbox, once there are `count`."""
        deadline = time.monotonic() + 90
        while len(found := [post for post in self.posts
                            if (post["type"], post["sandboxId"]) == (kind, sandbox)]) < count:
            assert time.monotonic() < deadline, f"no {kind} of {sandbox} among {self.posts}"
            time.sleep(0.05)
        return found


class Post(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.append({**body, "path": self.path, "headers": dict(self.headers)})
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Says nothing."""


@pytest.fixture(scope="module")
def receiver(vm_stack):
    name = f"{vm_stack.site.values['SVC_NET_PREFIX']}-0calls"
    with public_listener(name, PUBLIC, "192.0.2.251") as listener, Receiver(listener) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05},
                         daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def made(vm_alice):
    ids = []
    yield ids.append
    for sandbox in ids:
        vm_alice.delete(f"/v1/sandboxes/{sandbox}")


def callback(persona, sandbox, *arguments, **env):
    """Exit code of `svc-callback`, called as the agent server would."""
    return persona.exec(sandbox, "runuser", "-u", "user", "--", "svc-callback", *arguments,
                        env=env)["exitCode"]


def shell(persona, sandbox, line):
    return persona.exec(sandbox, "sh", "-c", line)["stdout"].split()


def test_an_agent_server_reports_to_its_session_and_its_copies_do_not(vm_alice, receiver, made):
    url = f"http://{PUBLIC}:{receiver.server_address[1]}/hook?session=5"
    bootstrap = {"callbackUrl": url, "callbackToken": TOKEN, "readinessPort": 4096}
    sandbox = vm_alice.create(agentServerSource=SERVER, agentBootstrap=bootstrap,
                              env={"MINE": "yes"})["id"]
    made(sandbox)
    ready = receiver.wait_for("agent_server_ready", sandbox)[0]
    assert (
        ready["path"] == "/hook?session=5"
        and ready["headers"]["Authorization"] == f"Bearer {TOKEN}"
    )
    assert ready["headers"]["Content-Type"] == "application/json" and "Signature" not in str(
        ready["headers"])
    assert receiver.wait_for("turn_complete", sandbox)[0]["turn"] == 1
    assert shell(vm_alice, sandbox, f"cat /tmp/who; stat -c '%U %a' {FILE} /run/svc-agent") == [
        "user", "user", "600", "user", "700"]
    assert {
        f"SVC_SANDBOX_ID={sandbox}", f"SVC_AGENT_BOOTSTRAP={FILE}", "MINE=yes", "HOME=/home/user"
    } <= set(shell(vm_alice, sandbox, "cat /tmp/env"))
    assert shell(vm_alice, sandbox, f"grep -rl {TOKEN} /tmp /var/log /etc /home || true") == []
    for kind in ("errors_notified", "session_reset", "steering_queued", "agent_aborted"):
        assert callback(vm_alice, sandbox, kind) == 0
        receiver.wait_for(kind, sandbox)

    for inside in ("localhost:4096", "2130706433:4096"):
        other = json.dumps({"callbackUrl": f"http://{inside}/", "callbackToken": "t"})
        vm_alice.exec(sandbox, "sh", "-c", "echo \"$1\" > /tmp/other.json", "sh", other)
        assert callback(vm_alice, sandbox, "turn_complete",
                        SVC_AGENT_BOOTSTRAP="/tmp/other.json") == REFUSED, inside

    pid = shell(vm_alice, sandbox, "pgrep -xf 'python3 -m http.server 4096'")
    again = vm_alice.exec(sandbox, "sh", "-c", f"python3 -c \"{AGAIN}\"; rm /run/svc-agent/started;"
                          " svc-agent-server start && ls /run/svc-agent/started")
    assert again["exitCode"] == 0, "as the host does when a start took it too long to hear of"
    assert callback(vm_alice, sandbox, "errors_notified") == 0
    assert vm_alice.post(f"/v1/sandboxes/{sandbox}/hibernate").status_code == 200
    assert vm_alice.post(f"/v1/sandboxes/{sandbox}/wake").status_code == 200
    assert shell(vm_alice, sandbox,
                 "pgrep -xf 'python3 -m http.server 4096'") == pid, "a wake resumes it"

    shell(vm_alice, sandbox, FAILS_ONCE)
    forks = [vm_alice.post(f"/v1/sandboxes/{sandbox}/fork", json=body).json()["id"]
             for body in ({}, {"skipAppProcesses": True})]
    for fork in forks:
        made(fork)
        vm_alice.wait_for(fork, "running")
        assert shell(vm_alice, fork, "ls /tmp/tried") == ["/tmp/tried"]
        assert callback(vm_alice, fork, "turn_complete") == NOT_CONFIGURED
    assert shell(vm_alice, forks[1],
                 "pgrep -xf 'python3 -m http.server 4096'; ls -d /run/svc-agent") == [], "raw"
    new = shell(
        vm_alice, forks[0], "until pgrep -xf 'python3 -m http.server 4096'; do sleep 0.2; done; "
        "cat /run/svc-agent/launch.json")
    assert new[0] != pid[0] and forks[0] in " ".join(new), "it runs a server of its own"
    assert {post["sandboxId"]
            for post in receiver.posts} == {sandbox}, "only the source has reported"
    assert len(receiver.wait_for("agent_server_ready", sandbox)) == 1, "and was started once"

    vm_alice.post(f"/v1/sandboxes/{sandbox}/exec", json={"cmd": "reboot", "detached": True})
    vm_alice.wait_for(sandbox, "hibernated")
    assert vm_alice.post(f"/v1/sandboxes/{sandbox}/wake").status_code == 200
    receiver.wait_for("agent_server_ready", sandbox, count=2)


def test_a_raw_sandbox_posts_nothing(vm_alice, receiver, made):
    url = f"http://{PUBLIC}:{receiver.server_address[1]}/"
    sandbox = vm_alice.create(agentBootstrap={"callbackUrl": url, "callbackToken": TOKEN})["id"]
    made(sandbox)
    assert callback(vm_alice, sandbox, "turn_complete") == NOT_CONFIGURED
    assert shell(vm_alice, sandbox,
                 "ls -d /run/svc-agent; systemctl is-active svc-agent-server") == ["inactive"]
    assert sandbox not in {post["sandboxId"] for post in receiver.posts}
