"""ALBERT in other systems, which take turns with ours."""
