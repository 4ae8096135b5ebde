"""Tokens, part-of-speech tags, vocabulary, concept candidates and word embedding."""
