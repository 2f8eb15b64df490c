"""The Keras layers that ALBERT is made of."""
