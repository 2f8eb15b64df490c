"""Embeddings: texts of similar meaning get similar vectors."""
