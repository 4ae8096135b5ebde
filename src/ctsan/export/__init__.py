"""Trained models in a form that other programs can run."""
