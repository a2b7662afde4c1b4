"""Previews: web servers in sandboxes at hosts of their own, which wake the sandbox.

It decides which host leads to which port, what a request has to wait for before it can reach one,
and what keeps the sandbox awake meanwhile. It moves no bytes: nginx and the gateway process carry
requests, and a wake is begun in `services.sandboxes`. Which host ports there are is decided in
`services.hosts`.
"""
