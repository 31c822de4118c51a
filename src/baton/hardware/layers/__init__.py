"""Layer-wise kernel timings of an engine on a GPU, composed into the step of a model."""
