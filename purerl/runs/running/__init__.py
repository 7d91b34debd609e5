"""Runs carried out: programs, batches of agents, logs and checkpoints, and going on with them."""
