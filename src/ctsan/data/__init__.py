"""Captioned clips: corpus formats, splits, test items and batches."""
