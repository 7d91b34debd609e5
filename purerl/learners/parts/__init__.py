"""Parts that a learner is made of: settings and their checks, estimates, gradient steps, normalisers, novelty."""
