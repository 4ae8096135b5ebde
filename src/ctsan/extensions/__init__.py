"""What the paper does not have: the joint embedding of sentences and clips, and probes of mean features."""
