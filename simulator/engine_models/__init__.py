"""Engine models, one file each; `registry` lists them by name."""
