"""RACE: exam questions about a passage, with four options each."""

from official_albert.tasks.race.examples import LETTERS, RECIPES, Recipe
