"""Token classification: named entities and other tags of words."""

from official_albert.tasks.tagging.tags import (
  find_spans,
  first_pieces,
  make_entities,
  of_words,
  split_words,
)
