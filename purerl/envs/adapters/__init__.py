"""Adapters for environments of other libraries, which are imported on first use."""
