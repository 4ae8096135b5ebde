"""Index videos and pictures once, then search them by sentence, by clip and by concept word."""
