"""A page and a JSON API over a predictor and a library, on this machine."""
