"""Bytes to a real HTTP server that no HTTP library would send, and what it answers."""
import re
import socket
from urllib.parse import urlsplit


def talk(url, payload, *, end=True):
    """Everything the server answers to these bytes until it hangs up; that it does after their
    `end`, else it is waited for three seconds."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port),
                                  timeout=30 if end else 3) as link:
        link.sendall(payload)
        if end:
            link.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while chunk := link.recv(65536):
                received += chunk
        except (TimeoutError, ConnectionResetError):
            pass
        return received


def statuses(answer):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


def request(alice, *, body=b"", method=b"POST", path=b"/v1/sandboxes", more=b""):
    key = alice.api_key.encode()
    head = b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer "
    return method + b" " + path + head + key + b"\r\n" + more + b"\r\n" + body
