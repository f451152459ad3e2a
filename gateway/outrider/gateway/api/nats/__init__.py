"""The API over NATS: requests and answers as JSON, tokens as frames."""
