"""Export of a trained policy to a file that other programs run: a program of `jax.export`, numpy alone, or ONNX."""
