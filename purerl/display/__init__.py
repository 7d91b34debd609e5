"""Output for users: progress, tables, plots, films and a page on runs."""
