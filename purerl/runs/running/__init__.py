"""The execution of runs: programs, batches of agents, logs and checkpoints, and resuming."""
