"""Settings, logging and the options of the processes; imports nothing else of ours."""
