"""An HTTP server around the decode engine: OpenAI's protocols, exact token records, rollouts by URL."""
