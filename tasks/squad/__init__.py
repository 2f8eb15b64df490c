"""SQuAD 1.1 and 2.0: answers that are spans of a paragraph."""

from official_albert.tasks.squad.examples import RECIPES, Recipe
from official_albert.tasks.squad.metrics import CHOSEN_THRESHOLD, IN_PERCENT
