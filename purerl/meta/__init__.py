"""Meta-evolution: learned losses and how they are found."""
