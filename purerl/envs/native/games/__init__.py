"""Small games of several agents, whose values are known exactly or by enumeration."""
