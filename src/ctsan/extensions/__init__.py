"""Parts that are not in the paper: a joint embedding of sentences and clips, and probes of mean features."""
