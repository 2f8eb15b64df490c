"""Masked LM and sentence order: ALBERT's pretraining objective."""
