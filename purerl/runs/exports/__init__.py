"""A trained policy as a file that others run: a program of `jax.export`, numpy alone, or ONNX."""
