"""Answer graders. None of them evaluates model text in the trainer process."""
