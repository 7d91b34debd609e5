"""What a person sees: progress, tables and plots."""
