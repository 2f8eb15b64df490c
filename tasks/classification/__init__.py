"""The user's own texts, or pairs of them, to classes or to a number."""
