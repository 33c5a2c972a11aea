"""Pages of the adviser: proposals, the page of each one, and the record of what came of them."""
