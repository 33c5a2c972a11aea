"""Models of manifests: what each manager applied last."""
