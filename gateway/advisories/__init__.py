"""Sessions that announce their next request: what is known of them, what is moved for them, and what that was worth."""
