"""What runs have left, read back: policies played again, curves, tables and films."""
