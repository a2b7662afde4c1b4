"""The agent presets: what they are made of, the builder of the image that has them, and what
activates one in a guest.

The presets image is the guest image with `/opt/svc/presets` in it. There, `<slug>/` has the files
of a preset, none of them on PATH; `activate.py` puts one on it. `presets.json` says what is there:

    {"presets": {"codex": {
        "state": "ready",                   or "failed"
        "version": "0.169.0",               what the preset's own --version has to say
        "reason": "",                       why it failed, in one sentence for users
        "bins": {"codex": "codex/node_modules/.bin/codex"},    below /opt/svc/presets
        "needsNode": true}}}                its bins are started by `node`

All five presets are named in it, those that the operator left out as failed. The web UI `lfg` needs
the four agents, and fails with any of them.
"""

SLUGS = ("opencode", "pi", "codex", "claude", "lfg")
"""Every preset, in the order of the contract."""
POINTER, LOCK = "presets", ".presets.lock"
"""In an image directory: the link to the present image, below images/, and its builder's lock."""
TREES = "presets"
"""And where what is installed is kept for the next image."""
GUEST_DIR = "/opt/svc/presets"
"""Where they are in a guest."""
