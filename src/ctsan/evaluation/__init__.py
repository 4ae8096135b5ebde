"""Metrics as pure functions of predictions and references."""
