"""Output for people: progress bars, tables and plots."""
