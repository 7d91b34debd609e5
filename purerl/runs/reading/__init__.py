"""The results of runs, read back: policies played again, curves, tables and films."""
