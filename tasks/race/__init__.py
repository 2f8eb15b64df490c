"""RACE: exam questions with four options each."""
