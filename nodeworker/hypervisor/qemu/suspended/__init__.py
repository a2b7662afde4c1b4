"""Machines whose process stands suspended, so that a wake or a create goes on with it instead of
starting one: those kept of sleeping sandboxes, and spares."""
