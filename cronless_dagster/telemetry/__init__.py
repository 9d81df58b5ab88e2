"""What operators see: metrics, traces, and log lines with a name."""
