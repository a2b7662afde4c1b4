"""Apps that are not static: the sandbox that serves one, how requests are held while its database
moves to the next, and how the one before is stopped.

It decides which sandbox serves an app and which key to the store that has, how long requests are
held, and when a sandbox has served its time. It starts no process and moves no database: the node
does (`nodeworker/deploys`), under the claim of a run. When a version goes live is
`services.deploys.publishing`.
"""
