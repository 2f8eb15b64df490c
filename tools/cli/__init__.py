"""Command lines: how programs start, flags that several of them share."""
