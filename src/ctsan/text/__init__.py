"""Words: tokens, parts of speech, vocabulary, concept candidates, embedding."""
