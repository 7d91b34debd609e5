"""What `scripts/benchmark.py` measures: a module for each kind of workload, and the turns that all of them take."""
