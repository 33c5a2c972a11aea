"""The Steering and Jobs pages: what each automation does, and the verbs."""
