"""Export trained models for other runtimes."""
