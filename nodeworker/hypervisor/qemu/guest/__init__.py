"""What the driver says to the agent of a machine that it just brought to life: who it is now."""
