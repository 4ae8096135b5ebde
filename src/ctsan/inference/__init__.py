"""From video files to answers: featurise, encode, caption, rerank, mix the models of an ensemble."""
