"""What all pages share: frame, error pages, form fields, moments, static files."""
