"""SQuAD 1.1 and 2.0: answers that are spans of a paragraph."""
