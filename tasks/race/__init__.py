"""RACE: exam questions about a passage, with four options each."""

from official_albert.tasks.race.examples import (
  LETTERS,
  RECIPES,
  RaceExample,
  Recipe,
  accuracy_by_level,
  make_all_inputs,
  read_examples,
)
