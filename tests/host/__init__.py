"""A node, a driver and a guest agent without the rest of the service."""
