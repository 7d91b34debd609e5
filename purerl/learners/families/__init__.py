"""Families of algorithms: what the boxes of several algorithms share."""
