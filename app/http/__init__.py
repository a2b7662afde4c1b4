"""What every HTTP process shares, from the first byte of a request to the last of its answer.

It decides who may call (credentials, default deny), how a route is declared, how bodies are read
and errors rendered, how many calls may wait at a time, and what the OpenAPI document says. It knows
no sandbox, no key and no other resource: those are in the folders of the processes.
"""
