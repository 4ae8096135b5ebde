"""Pictures and films of what a model does."""
