"""Measurements of the whole product. Nothing in `rowmill` imports from here."""
