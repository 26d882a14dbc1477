"""The trusted side: queues, processes and verdicts."""
