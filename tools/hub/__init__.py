"""Publishes an encoder and its preprocessor as modules of TF Hub."""
