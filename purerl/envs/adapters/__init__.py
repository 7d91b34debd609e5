"""Environments of other libraries, which are imported when the first one is made."""
