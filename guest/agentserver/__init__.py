"""What a sandbox that runs an agent server has for it: its start, and the callbacks to the session
it serves."""
