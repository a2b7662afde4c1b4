"""What lives inside the virtual machine: the agent that serves requests and the recipe of the disk
image."""
