"""A training step through the TPU's compiler, without a TPU."""
