"""The loop that trains any task, its settings and its checkpoints."""
