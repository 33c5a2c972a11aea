"""One declaration per object: the API, forms, bulk paste, CSV, and audit read its fields from here."""
