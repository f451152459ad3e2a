"""Between the wire and the engine: messages become requests, outputs become frames, refusals errors."""
