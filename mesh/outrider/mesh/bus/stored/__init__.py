"""What JetStream keeps: streams of messages, and buckets of values."""
