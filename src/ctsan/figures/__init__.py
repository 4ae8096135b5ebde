"""Figures and videos that show traces, concept words and attention."""
