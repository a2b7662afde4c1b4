"""The guest agent: one process in every sandbox that runs commands and moves files for the
service."""
