"""Tensors. torch and transformers are imported in this package and nowhere else."""
