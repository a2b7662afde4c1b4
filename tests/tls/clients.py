"""Clients of a stack's edge, by its hosts' names and with its authority, and nothing of the
system's."""
import socket
import ssl
import subprocess

import httpx


def context_of(stack):
    """A TLS context that trusts the stack's authority only."""
    return ssl.create_default_context(cafile=stack.site.values["SVC_CA_FILE"])


def client(stack, host="localhost", source=None):
    """An httpx client of one host of the edge, with an address of its own if `source` is one."""
    def name(request):
        request.extensions["sni_hostname"] = host
    port = stack.settings.edge_port
    transport = httpx.HTTPTransport(verify=context_of(stack), local_address=source)
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", headers={"Host": f"{host}:{port}"},
                        transport=transport, timeout=60, event_hooks={"request": [name]})


def connect(stack, host="localhost"):
    """An open TLS connection, to be closed by the caller."""
    plain = socket.create_connection(("127.0.0.1", stack.settings.edge_port), timeout=30)
    try:
        return context_of(stack).wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def talk(stack, payload, host="localhost"):
    """All that the edge answers to these bytes until it hangs up."""
    with connect(stack, host) as link:
        link.sendall(payload)
        received = b""
        while piece := link.recv(65536):
            received += piece
        return received


def read(answer):
    """Status, headers and error of the only answer among these bytes."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert not body.count(b"HTTP/1.1")
    return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:]), body


def curl(stack, host, path, *arguments):
    """What curl prints about a request over HTTP/2: `code version`, then the body."""
    port = stack.settings.edge_port
    return subprocess.run([
        "curl", "--silent", "--show-error", "--http2", "--noproxy", "*", "--cacert",
        stack.site.values["SVC_CA_FILE"], "--resolve", f"{host}:{port}:127.0.0.1", "--write-out",
        "%{stderr}%{http_code} %{http_version}", f"https://{host}:{port}{path}", *arguments
    ], text=True, capture_output=True, check=True)
