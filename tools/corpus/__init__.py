"""What tools.gather_corpus reads."""
