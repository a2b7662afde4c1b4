"""The shell process: terminals in sandboxes over WebSockets (contract, Interactive shell)."""
