"""GPUs that this machine need not have: what they are, compiling for them, and counting what programs do there."""
