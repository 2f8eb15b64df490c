"""Embeddings: texts of similar meaning get similar vectors."""

from official_albert.tasks.embedding.examples import Recipe
