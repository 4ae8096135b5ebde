"""Clips to frames, frames to feature maps, maps to a store."""
