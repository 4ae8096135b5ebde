"""Atomic files, paths, devices and a stopwatch."""
