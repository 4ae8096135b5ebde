"""A corpus of rendered clips with captions and ground truth, for tests, demos and experiments."""

from ctsan.synthetic.make import make_corpus

__all__ = ["make_corpus"]
