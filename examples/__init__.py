"""Programs that customers might run beside Switchyard; they know it by its API alone."""
