"""Metrics as pure functions over predictions."""
