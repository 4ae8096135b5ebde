"""Description, fill-in-the-blank, multiple choice, retrieval: one file each, behind `task.Task`."""
