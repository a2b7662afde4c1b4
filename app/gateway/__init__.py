"""The process behind the edge that knows where previews lead: it answers look-ups, wakes sandboxes,
and passes on what came while they slept."""
