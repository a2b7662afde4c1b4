"""What the driver says to the agent of a machine that it just brought to life: who it is now, or
what it is to do before its memory is kept as a warm image."""
