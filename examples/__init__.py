"""Programs that customers might run with Headway; they use only its API."""
