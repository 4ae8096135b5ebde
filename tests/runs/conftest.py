"""The twelve clips of animals, for every test here."""

from animals import clips, store, words

__all__ = ["clips", "store", "words"]
