"""The web page and its JSON API: `ctsan serve`."""
