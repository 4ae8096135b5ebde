"""Captioned clips: reading every corpus format, splits, test items."""
