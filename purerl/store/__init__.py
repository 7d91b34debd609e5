"""Files: JSON, metrics, policies and checkpoints. Nothing is pickled."""
