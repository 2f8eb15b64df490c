"""Toy tasks, toy vocabularies and processes that tests share."""
