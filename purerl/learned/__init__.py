"""Learned functions: the sockets of algorithms that take them, and their files."""
