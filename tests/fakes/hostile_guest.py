"""A guest agent that answers whatever it is asked with bytes that a test gives it, on a real
socket."""
import contextlib
import json
import socketserver
import struct
import threading
import time

import psycopg2

DATA, STDOUT, STDERR, RESULT, FAILURE = 2, 3, 4, 5, 6
ENDED = {
    "exitCode": 0, "timedOut": False, "stdoutTruncated": False, "stderrTruncated": False, "pid": 2
}


def frame(kind, payload):
    """A frame of the agent's protocol; what is not bytes goes as JSON."""
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">BI", kind, len(content)) + content


class HostileGuest(socketserver.ThreadingTCPServer):
    """Sends `reply` after `delay_s`, then `for_ever` again and again if there is any, and hangs up
    (or is silent first, or `keeps` the connection). `asked` counts its calls, `left` the callers
    that hung up in the middle of an answer, `heard` are their first pieces; what one of them holds
    may have a reply of its own, in `replies`."""

    allow_reuse_address = daemon_threads = True
    reply = for_ever = b""
    delay_s = silent_s = 0.0
    asked = connected = left = 0
    keeps = False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.heard, self.replies = [], {}

    def reply_to(self, piece):
        """What this call gets."""
        return next((reply for held, reply in self.replies.items() if held in piece), self.reply)


class _Connection(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.connected += 1
        while self._answer() and self.server.keeps:
            pass

    def _answer(self):
        """False once the caller has hung up, or is to be hung up on: there was nothing to send."""
        self.request.settimeout(5)
        piece = self.request.recv(65536)
        if not piece:
            return False
        self.request.settimeout(60)  # of all that is sent, on a busy machine
        self.server.asked += 1
        self.server.heard.append(piece)
        time.sleep(self.server.delay_s)
        try:
            reply = self.server.reply_to(piece)
            self.request.sendall(reply)
            while self.server.for_ever:
                self.request.sendall(self.server.for_ever)
        except OSError:
            self.server.left += 1
            return False
        time.sleep(self.server.silent_s)
        return bool(reply)


@contextlib.contextmanager
def serving():
    """A hostile guest on a free port of this machine."""
    with HostileGuest(("127.0.0.1", 0), _Connection) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05},
                         daemon=True).start()
        yield server
        server.shutdown()


def point_at(stack, sandbox_id, port):
    """From now on the agent of the sandbox is whatever listens on `port` of this machine."""
    with contextlib.closing(
        psycopg2.connect(stack.site.values["SVC_DATABASE_URL"])
    ) as link, link, link.cursor() as cursor:
        cursor.execute("UPDATE sandboxes SET agent_port = %s WHERE id = %s", (port, sandbox_id))
