"""Records on disk: what is in them, how they are written, how they are read."""
