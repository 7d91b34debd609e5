"""The games of MinAtar, Young & Tian 2019 (arXiv 1903.03176), step by step those of gymnax 1.0."""
