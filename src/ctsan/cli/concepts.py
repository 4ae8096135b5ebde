"""`ctsan concepts`."""

from ctsan.cli.describe import concepts as command

__all__ = ["command"]
