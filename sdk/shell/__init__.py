"""The interactive shell of a sandbox, in a user's terminal: `bin/svc-shell` for Python,
`shell.mjs` for Node.js and Bun.

Both live here, because they are for the machines of users and import nothing of ours: `shell.mjs`
is a file to copy, this package goes where `sdk` goes.
"""
