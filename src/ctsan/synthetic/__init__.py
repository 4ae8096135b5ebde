"""A corpus of rendered clips with captions and ground truth, for tests, demonstrations and measurements."""

from ctsan.synthetic.make import make_corpus

__all__ = ["make_corpus"]
