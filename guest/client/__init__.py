"""The host's side of the guest agent's protocol."""
