"""Programs that customers might run beside Headway; they know it by its API alone."""
