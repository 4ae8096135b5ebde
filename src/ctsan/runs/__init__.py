"""Run folders, checkpoints and packs: save, load, check."""
