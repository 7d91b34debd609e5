"""What algorithms share: gradient steps, families of losses, normalisers, and checks of configs."""
