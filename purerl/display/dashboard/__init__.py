"""The page on the runs in a folder: its files, a server for this machine alone, and curves of logs that still grow."""
