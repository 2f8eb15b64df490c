"""Fine-tuning: tasks with their data, one run, and several seeds."""
